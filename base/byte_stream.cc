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
  const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  return write_gathered({&part, 1});
}

Result<size_t> TcpStream::write_gathered(std::span<const iovec> parts) {
  const msghdr message{.msg_iov = const_cast<iovec*>(parts.data()), .msg_iovlen = parts.size()};
  const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (n >= 0) return static_cast<size_t>(n);
  if (would_block()) return size_t{0};
  return unavailable(std::string("write: ") + std::strerror(errno));
}

}  // namespace baton
