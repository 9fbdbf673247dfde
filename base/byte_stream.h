// One connected stream of bytes: under a link, and under the page transport "tcp". Plain TCP here,
// TLS in tls.h. Owned and called by one connection on its one thread; nothing here waits.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/scoped_fd.h"
#include "base/status.h"

namespace baton {

enum class StreamSide { kDialer, kAcceptor };

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual int fd() const = 0;  // to wait on
  // Bytes read or written; 0 when it would block; a Status once the stream has ended or failed
  // (kUnauthenticated: the peer is not who it must be).
  virtual Result<size_t> read(char* to, size_t bytes_max) = 0;
  // After 0 or less than all, the next call begins with the same bytes.
  virtual Result<size_t> write(std::string_view bytes) = 0;
  // The same for several pieces in a row.
  virtual Result<size_t> write_gathered(std::span<const iovec> parts) = 0;
  // Whether to wait until the socket takes bytes; `pending`: the caller has some to write.
  virtual bool wants_write(bool pending) const { return pending; }
  // Bytes have come that fd() does not show any more: read() before waiting.
  virtual bool buffered() const { return false; }
  // A secret that only the two ends of this stream share, once bytes flow; empty for a plain one.
  virtual std::string channel_binding() const { return {}; }
};

class TcpStream final : public ByteStream {
 public:
  explicit TcpStream(ScopedFd socket) : socket_(std::move(socket)) {}
  int fd() const override { return socket_.get(); }
  Result<size_t> read(char* to, size_t bytes_max) override;
  Result<size_t> write(std::string_view bytes) override;
  Result<size_t> write_gathered(std::span<const iovec> parts) override;

 private:
  ScopedFd socket_;
};

}  // namespace baton
