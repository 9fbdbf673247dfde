#include "base/cluster_token.h"

#include <fstream>

#include "base/status.h"

namespace baton {
namespace {

// Shorter ones can be guessed offline from one recorded hello.
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokensMax = 8;

}  // namespace

std::vector<std::string> read_cluster_tokens(const std::string& path) {
  if (path.empty()) return {""};
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("link.token_file: cannot read " + path);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(file, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.empty()) continue;
    if (line.size() < kTokenBytesMin)
      throw ConfigError("link.token_file: got a token of " + std::to_string(line.size()) +
                        " bytes in " + path + ", want at least " + std::to_string(kTokenBytesMin));
    tokens.push_back(std::move(line));
  }
  if (tokens.empty() || tokens.size() > kTokensMax)
    throw ConfigError("link.token_file: got " + std::to_string(tokens.size()) + " tokens in " +
                      path + ", want 1 to " + std::to_string(kTokensMax) + ", one a line");
  return tokens;
}

}  // namespace baton
