// One connection of Links: its stream, hello, frames, heartbeats and lease. Owned and called by the
// I/O thread of link.cc only; it never waits. The order of calls: receive() when readable, then
// next() until it has nothing more, flush(), tick() when due.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <variant>

#include "base/byte_stream.h"
#include "base/frame.h"
#include "base/hello.h"
#include "base/link.h"

namespace baton {

class LinkConnection {
 public:
  struct Nothing {};  // until more bytes come
  struct Up {};       // messages may be sent from now on
  // A Status says that the connection must be dropped, and why.
  using Event = std::variant<Nothing, Up, Message, Status>;

  // `address`: as dialled, empty for an accepted one.
  LinkConnection(LinkId id, std::unique_ptr<ByteStream> stream, Hello hello, std::string address,
                 const LinkConfig& config, int64_t now_us);

  void receive(int64_t now_us);
  Event next(int64_t now_us);

  // An error: the link must be dropped, the peer is too slow or the message too large.
  Status send(const Message& message);
  // Writes until the stream takes no more.
  Status flush();
  bool wants_write() const { return stream_->wants_write(unwritten()); }

  // Heartbeats, silence, and a hello that does not come. Call it at next_tick_us().
  Status tick(int64_t now_us);
  int64_t next_tick_us() const;

  LinkId id() const { return id_; }
  int fd() const { return stream_->fd(); }
  bool up() const { return announced_up_; }
  const PeerInfo& peer() const { return hello_.peer(); }
  const std::string& address() const { return address_; }
  bool dialled() const { return hello_.side() == Hello::Side::kDialer; }
  const std::shared_ptr<std::atomic<int64_t>>& lease() const { return lease_; }

  int64_t bytes_in() const { return bytes_in_; }
  int64_t bytes_out() const { return bytes_out_; }
  int64_t outbox_bytes() const;

  bool write_watched = false;  // the loop's note: whether it waits until the stream takes more

 private:
  bool unwritten() const { return out_at_ < out_.size() || !frames_.empty(); }
  Event next_of_hello(int64_t now_us);
  Event announce_up(int64_t now_us);
  Status check_outbox() const;  // RESOURCE_EXHAUSTED when the peer leaves too much unread
  void take_heartbeat(const Heartbeat& heartbeat, int64_t now_us);
  void renew_lease(int64_t asked_us, int64_t now_us);

  const LinkId id_;
  const std::unique_ptr<ByteStream> stream_;
  const std::string address_;
  const LinkConfig config_;
  const int64_t hello_deadline_us_;
  Hello hello_;
  bool announced_up_ = false;

  std::string in_;  // hello bytes; frames go to reader_
  FrameReader reader_;
  Status read_status_;  // why no more bytes come; told after what did come
  FrameQueue frames_;
  std::string out_;
  size_t out_at_ = 0;
  int64_t bytes_in_ = 0;
  int64_t bytes_out_ = 0;

  int64_t heard_us_;  // when the last byte came in
  int64_t asked_us_;  // when the hello's last question went out: the peer's answer acknowledges it
  int64_t heartbeat_us_ = 0;  // when the next one is due
  std::shared_ptr<std::atomic<int64_t>> lease_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace baton
