#include "kvtransfer/unix_socket.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

namespace baton {
namespace {

struct Address {
  sockaddr_un sun{};
  socklen_t bytes = 0;
};

std::optional<Address> abstract_address(const std::string& name) {
  Address address;
  if (name.empty() || name.size() + 1 > sizeof(address.sun.sun_path)) return std::nullopt;
  address.sun.sun_family = AF_UNIX;
  std::memcpy(address.sun.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Status system_error(const std::string& what) {
  return unavailable(what + ": " + strerror(errno));
}

using Connect = int (*)(int, const sockaddr*, socklen_t);

Result<ScopedFd> open_unix(const std::string& name, Connect bind_or_connect) {
  const std::optional<Address> address = abstract_address(name);
  if (!address)
    return invalid_argument("UNIX socket: unusable name of " + std::to_string(name.size()) +
                            " bytes");
  ScopedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || bind_or_connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->sun),
                                     address->bytes) != 0) {
    return system_error("UNIX socket");
  }
  return fd;
}

constexpr size_t kControlBytes = CMSG_SPACE(kMessageFdsMax * sizeof(int));

// Takes every descriptor out of `header`, whatever follows.
std::vector<ScopedFd> take_fds(msghdr& header) {
  std::vector<ScopedFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Result<ScopedFd> listen_unix(const std::string& name) {
  Result<ScopedFd> fd = open_unix(name, bind);
  if (fd.ok() && listen(fd->get(), 64) != 0) return system_error("UNIX socket: listen");
  return fd;
}

Result<ScopedFd> connect_unix(const std::string& name) {
  return open_unix(name, connect);
}

ScopedFd accept_unix(int listener) {
  return ScopedFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

// glibc 2.36 has no wrapper that C++ programs can rely on.
Result<ScopedFd> own_pidfd() {
  ScopedFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!pidfd.valid()) return system_error("pidfd_open");
  return pidfd;
}

int32_t peer_pid(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  const int rc = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes);
  return rc == 0 ? credentials.pid : 0;
}

Status send_message(int socket, std::string_view bytes, const std::vector<int>& fds) {
  CHECK(bytes.size() <= kMessageBytesMax && fds.size() <= kMessageFdsMax)
      << bytes.size() << " bytes, " << fds.size();
  iovec data{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr header{.msg_iov = &data, .msg_iovlen = 1};
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL) < 0) return system_error("UNIX socket: send");
  return {};
}

Result<UnixMessage> receive_message(int socket) {
  char buffer[kMessageBytesMax];
  iovec data{.iov_base = buffer, .iov_len = sizeof(buffer)};
  alignas(cmsghdr) char control[kControlBytes];
  msghdr header{
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  const ssize_t got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (got < 0) return system_error("UNIX socket: receive");
  UnixMessage message{std::string(buffer, static_cast<size_t>(got)), take_fds(header)};
  if (got == 0) return unavailable("the peer has closed the connection");
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return invalid_argument("message: too long, or descriptors lost");
  return message;
}

}  // namespace baton
