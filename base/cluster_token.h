// The secrets that the processes of one cluster share (LinkConfig::token_file). Called by
// credential_files.cc.
#pragma once

#include <string>
#include <vector>

namespace baton {

// The file's lines without blanks around them; empty lines do not count. One empty token for an
// empty path. Throws ConfigError when the file cannot be read, holds no line, or one of less than
// 16 bytes.
std::vector<std::string> read_cluster_tokens(const std::string& path);

}  // namespace baton
