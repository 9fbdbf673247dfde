#include "base/credential_files.h"

#include <sys/stat.h>

#include "base/cluster_token.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace baton {
namespace {

TlsFiles checked_tls_files(const LinkConfig& config) {
  const TlsFiles files{config.tls_cert_file, config.tls_key_file, config.tls_ca_file};
  const int given = !files.cert.empty() + !files.key.empty() + !files.ca.empty();
  if (given != 0 && given != 3)
    throw ConfigError("link.tls_cert_file, link.tls_key_file, link.tls_ca_file: got " +
                      std::to_string(given) + " of the three, want all or none");
  return files;
}

}  // namespace

std::unique_ptr<ByteStream> Credentials::open(ScopedFd socket, StreamSide side) const {
  if (tls != nullptr) return tls->open(std::move(socket), side);
  return std::make_unique<TcpStream>(std::move(socket));
}

CredentialFiles::CredentialFiles(const LinkConfig& config)
    : token_file_(config.token_file), tls_files_(checked_tls_files(config)) {
  loaded_stamp_ = stamp();
  current_ = load();
  if (!token_file_.empty()) warn_if_readable_by_others("link.token_file", token_file_);
  if (!tls_files_.key.empty()) warn_if_readable_by_others("link.tls_key_file", tls_files_.key);
}

std::shared_ptr<const Credentials> CredentialFiles::current() {
  std::lock_guard lock(mutex_);
  // Taken before reading: a file that changes meanwhile is read again next time.
  const std::vector<int64_t> now = stamp();
  if (now == loaded_stamp_ || now == failed_stamp_) return current_;
  try {
    current_ = load();
    loaded_stamp_ = now;
    failed_stamp_.clear();
    log_info("link_credentials_reloaded",
             {{"tokens", current_->tokens.size()}, {"tls", current_->tls != nullptr}});
  } catch (const ConfigError& error) {
    failed_stamp_ = now;
    log_error("link_credentials_kept", {{"reason", error.what()}});
  }
  return current_;
}

std::vector<int64_t> CredentialFiles::stamp() const {
  std::vector<int64_t> numbers;
  for (const std::string* path :
       {&token_file_, &tls_files_.cert, &tls_files_.key, &tls_files_.ca}) {
    struct stat file = {};
    if (path->empty() || ::stat(path->c_str(), &file) != 0) file = {};
    for (const int64_t number :
         {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino),
          int64_t{file.st_size}, int64_t{file.st_ctim.tv_sec}, int64_t{file.st_ctim.tv_nsec}})
      numbers.push_back(number);
  }
  return numbers;
}

std::shared_ptr<const Credentials> CredentialFiles::load() const {
  auto credentials = std::make_shared<Credentials>();
  credentials->tokens = read_cluster_tokens(token_file_);
  if (!tls_files_.cert.empty()) credentials->tls = std::make_shared<TlsContext>(tls_files_);
  return credentials;
}

}  // namespace baton
