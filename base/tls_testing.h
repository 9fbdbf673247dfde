// For tests of TLS: a folder with an authority and certificates made by the program `openssl`, gone
// with the object. Included by tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "base/tls.h"

namespace baton {

class TestAuthority {
 public:
  TestAuthority() {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton-tls-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for tests");
    folder_ = pattern;
    run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj '/CN=" +
        folder_.filename().string() + "' -keyout ca.key -out ca.pem");
  }
  ~TestAuthority() { std::filesystem::remove_all(folder_); }
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  // A new key and certificate in name.key and name.pem; `days` < 0: has run out.
  TlsFiles issue(const std::string& name, int days = 1) const {
    run("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=" + name +
        "' -keyout " + name + ".key -out " + name + ".csr");
    run("x509 -req -in " + name + ".csr -CA ca.pem -CAkey ca.key -CAcreateserial -days " +
        std::to_string(days) + " -out " + name + ".pem");
    return {path(name + ".pem"), path(name + ".key"), path("ca.pem")};
  }
  std::string path(const std::string& file) const { return folder_ / file; }

 private:
  void run(const std::string& command) const {
    const std::string line =
        "cd " + folder_.string() + " && umask 077 && openssl " + command + " 2> log";
    if (std::system(line.c_str()) != 0) throw std::runtime_error("failed: " + line);
  }

  std::filesystem::path folder_;
};

}  // namespace baton
