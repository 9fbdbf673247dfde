#include "kvtransfer/dialler.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace baton {

Dialler::Dialler(PollLoop& loop, std::vector<SocketAddress> addresses, int64_t timeout_ms,
                 Events events)
    : loop_(loop),
      timeout_ms_(timeout_ms),
      events_(std::move(events)),
      addresses_(std::move(addresses)) {
  timeout_ = loop_.after_ms(0, [this] { try_next(); });  // it may fail: not in the constructor
}

void Dialler::note_failure(const std::string& failure) {
  failures_ += (failures_.empty() ? "" : ", ") + address_ + ": " + failure;
}

void Dialler::try_next() {
  watch_.reset();
  if (addresses_.empty()) {
    const auto failed = events_.failed;  // outlives this object
    return failed(unavailable(failures_));
  }
  const SocketAddress address = addresses_.front();
  addresses_.erase(addresses_.begin());
  address_ = address.to_string();
  const auto* target = reinterpret_cast<const sockaddr*>(&address.storage);
  socket_ = ScopedFd(socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool begun = socket_.valid() &&
                     (::connect(socket_.get(), target, address.bytes) == 0 || errno == EINPROGRESS);
  if (begun) {
    watch_ = loop_.watch(socket_.get(), EPOLLOUT, [this](uint32_t) { on_connected(); });
  } else {
    note_failure(strerror(errno));
  }
  timeout_ = loop_.after_ms(begun ? timeout_ms_ : 0, [this, begun] {
    if (begun) note_failure("cannot connect");
    try_next();
  });
}

void Dialler::on_connected() {
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  watch_.reset();
  if (error != 0) {
    note_failure(strerror(error));
    return try_next();
  }
  timeout_.reset();
  set_data_options(socket_.get(), timeout_ms_);
  const auto connected = events_.connected;  // outlives this object
  const std::string address = address_;
  connected(std::move(socket_), address);
}

}  // namespace baton
