#include "router/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <fstream>

#include "base/log.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace baton {

ApiKeys::ApiKeys(const std::string& file) : file_(file), watched_({file}) {
  if (file_.empty()) return;
  warn_if_readable_by_others("http.api_keys_file", file_);
  digests_ = read(file_);
}

void ApiKeys::refresh() {
  if (file_.empty() || !watched_.changed()) return;
  try {
    digests_ = read(file_);
    log_info("api_keys_reloaded", {{"keys", digests_.size()}});
  } catch (const ConfigError& error) {
    log_error("api_keys_kept", {{"reason", error.what()}});
  }
}

bool ApiKeys::accept(std::string_view credential) const {
  if (file_.empty()) return true;
  const Digest given = digest_of(credential);
  bool known = false;
  for (const Digest& digest : digests_) {
    known |= CRYPTO_memcmp(digest.data(), given.data(), given.size()) == 0;
  }
  return known;
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest;
  CHECK(EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1)
      << "OpenSSL has no SHA-256";
  return digest;
}

std::vector<ApiKeys::Digest> ApiKeys::read(const std::string& file) {
  std::vector<Digest> digests;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) digests.push_back(digest_of(line));
  }
  if (digests.empty()) {
    throw ConfigError("http.api_keys_file: got " + file +
                      ", want a readable file with one key a line");
  }
  return digests;
}

}  // namespace baton
