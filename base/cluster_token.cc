#include "base/cluster_token.h"

#include <fstream>
#include <iterator>

#include "base/secret_file.h"
#include "base/status.h"

namespace baton {
namespace {

// Shorter ones can be guessed offline from one recorded hello.
constexpr size_t kTokenBytesMin = 16;

}  // namespace

std::string read_cluster_token(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path, std::ios::binary);
  std::string token{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw ConfigError("link.token_file: cannot read " + path);
  warn_if_readable_by_others("link.token_file", path);
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  token.erase(0, token.find_first_not_of(" \t\r\n"));
  if (token.size() < kTokenBytesMin)
    throw ConfigError("link.token_file: got " + std::to_string(token.size()) + " bytes in " + path +
                      ", want at least " + std::to_string(kTokenBytesMin));
  return token;
}

}  // namespace baton
