// The address on which the links of a process listen. Any thread.
#pragma once

#include <string>

#include "base/socket.h"

namespace baton {

// `listen`: host:port, the setting of this name. Without a cluster token only loopback will do.
// Asks the name service. Throws ConfigError.
SocketAddress listen_address(const std::string& listen, bool has_token);

}  // namespace baton
