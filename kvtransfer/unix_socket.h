// Message sockets of one host with descriptors attached (AF_UNIX, SOCK_SEQPACKET, abstract names,
// SCM_RIGHTS). Non-blocking.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/scoped_fd.h"
#include "base/status.h"

namespace baton {

inline constexpr size_t kMessageBytesMax = 256;
inline constexpr size_t kMessageFdsMax = 32;

struct UnixMessage {
  std::string bytes;
  std::vector<ScopedFd> fds;  // close-on-exec
};

// `name` without the leading zero byte of the abstract namespace.
Result<ScopedFd> listen_unix(const std::string& name);
Result<ScopedFd> connect_unix(const std::string& name);
ScopedFd accept_unix(int listener);  // invalid when nobody waits
int32_t peer_pid(int socket);        // 0: in a PID namespace that we do not see
Result<ScopedFd> own_pidfd();        // for a peer that watches for our death

// One whole message, or kUnavailable when the other end is gone or does not read (messages here are
// few and small).
Status send_message(int socket, std::string_view bytes, const std::vector<int>& fds);
// Waits for nothing: call it when the socket is readable. kUnavailable at the end of the
// connection.
Result<UnixMessage> receive_message(int socket);

}  // namespace baton
