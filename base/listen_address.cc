#include "base/listen_address.h"

namespace baton {

SocketAddress listen_address(const std::string& listen, bool has_token) {
  const Result<HostPort> target = parse_host_port(listen);
  if (!target.ok()) throw ConfigError("listen: got \"" + listen + "\", want host:port");
  const auto found = resolve(*target, /*numeric_only=*/false);
  if (!found.ok()) throw ConfigError("listen " + listen + ": " + found.status().message());
  const SocketAddress& address = found->front();
  if (!has_token && !is_loopback(address))
    throw ConfigError("listen: got " + listen +
                      " without a link.token_file, want one beyond loopback");
  return address;
}

}  // namespace baton
