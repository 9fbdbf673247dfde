// The secret that the processes of one cluster share (LinkConfig::token_file). Read once at start.
#pragma once

#include <string>

namespace baton {

// The file's text without blanks and line ends around it; empty for an empty path. Throws
// ConfigError when the file cannot be read or holds less than 16 bytes.
std::string read_cluster_token(const std::string& path);

}  // namespace baton
