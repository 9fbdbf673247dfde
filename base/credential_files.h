// What the processes of a cluster prove themselves with, from the files of LinkConfig: the cluster
// token and the TLS files. Looked at before every handshake, so that they can be replaced without a
// restart; connections that are up stay. Shared by the links (I/O thread) and the page transport
// "tcp" (handoff thread).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/byte_stream.h"
#include "base/tls.h"
#include "config/config.h"

namespace baton {

// Of one moment. `tls` is null where none is configured.
struct Credentials {
  std::vector<std::string> tokens;  // at least one; the first proves, all are accepted
  std::shared_ptr<const TlsContext> tls;

  std::unique_ptr<ByteStream> open(ScopedFd socket, StreamSide side) const;
};

// Thread-safe.
class CredentialFiles {
 public:
  // Throws ConfigError when a file cannot be used, or only some of the TLS files are given.
  explicit CredentialFiles(const LinkConfig& config);

  // As the files say now. Costs a stat() of each; reads them when one has changed. Files that do
  // not work (half replaced, mistyped) leave what there was and log one error.
  std::shared_ptr<const Credentials> current();
  bool has_token() const { return !token_file_.empty(); }

 private:
  // Changes whenever one of the files does: device, inode, size, status time of each.
  std::vector<int64_t> stamp() const;
  std::shared_ptr<const Credentials> load() const;

  const std::string token_file_;
  const TlsFiles tls_files_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<const Credentials> current_;
  std::vector<int64_t> loaded_stamp_;
  std::vector<int64_t> failed_stamp_;
};

}  // namespace baton
