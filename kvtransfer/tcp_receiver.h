// D's side of one tcp data connection: reads frames straight into granted pages. Handoff thread
// only; the grant board's lock is what the loop's thread waits for in disallow().
#pragma once

#include <array>
#include <string>

#include "kvtransfer/tcp.h"

namespace baton {

class TcpReceiver {
 public:
  TcpReceiver(const TransportContext& context, ScopedFd socket)
      : context_(context),
        stream_(context.credentials.current()->open(std::move(socket), StreamSide::kAcceptor)) {}

  void watch(PollLoop::Watch watch, PollLoop::Watch hello_timeout);
  // Not ok: the connection is over, destroy the receiver.
  Status on_ready();

  int fd() const { return stream_->fd(); }
  bool welcomed() const { return welcomed_; }
  LinkId link() const { return link_; }  // once welcomed

 private:
  // All three: bytes read, 0 when there are none now; an error at the connection's end.
  Result<int64_t> read_some(void* to, int64_t bytes);
  Result<int64_t> read_header();
  Result<int64_t> read_payload();
  Status take_hello();
  Status check_frame() const;
  Status flush_answers();

  const TransportContext& context_;
  const std::unique_ptr<ByteStream> stream_;
  bool welcomed_ = false;
  LinkId link_ = 0;
  std::array<char, sizeof(TcpFrame)> header_{};
  static_assert(sizeof(TcpFrame) >= kHelloBytes);
  int64_t header_bytes_ = 0;  // read so far of the hello or frame header
  bool in_payload_ = false;
  TcpFrame frame_;
  int64_t payload_bytes_ = 0;  // read so far
  bool given_up_ = false;      // part of this frame was dropped
  std::string answers_;        // not yet sent
  PollLoop::Watch timeout_;
  PollLoop::Watch watch_;
};

}  // namespace baton
