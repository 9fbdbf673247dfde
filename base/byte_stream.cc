#include "base/byte_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace baton {
namespace {

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Result<size_t> TcpStream::read(char* to, size_t bytes_max) {
  const ssize_t n = ::recv(socket_.get(), to, bytes_max, 0);
  if (n > 0) return static_cast<size_t>(n);
  if (n == 0) return unavailable("closed by the peer");
  if (would_block()) return size_t{0};
  return unavailable(std::string("read: ") + std::strerror(errno));
}

Result<size_t> TcpStream::write(std::string_view bytes) {
  const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n >= 0) return static_cast<size_t>(n);
  if (would_block()) return size_t{0};
  return unavailable(std::string("write: ") + std::strerror(errno));
}

}  // namespace baton
