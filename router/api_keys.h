// The API keys that clients may call with, from a file with one key a line; read again when it
// changes. Only digests are kept. Router loop thread only.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "router/watched_files.h"

namespace baton {

class ApiKeys {
 public:
  // An empty `file`: no key is needed. Throws ConfigError when the file has no key.
  explicit ApiKeys(const std::string& file);

  // Reads the file again if it has changed. One without a key (half written, gone) leaves the keys
  // there were and logs an error: a mistake must neither open the door nor shut everybody out.
  void refresh();

  // Takes as long whichever key is given: digests are compared, all of them, in constant time.
  bool accept(std::string_view credential) const;

 private:
  using Digest = std::array<unsigned char, 32>;  // SHA-256

  static Digest digest_of(std::string_view key);
  static std::vector<Digest> read(const std::string& file);  // throws ConfigError

  const std::string file_;
  WatchedFiles watched_;
  std::vector<Digest> digests_;
};

}  // namespace baton
