// Mutual TLS 1.3 (RFC 8446) over a socket of ours, by OpenSSL: the only users of its SSL half are
// tls.cc and this header's callers, credential_files.cc and tests.
//
// Both ends show a certificate, and each must lead to an authority in the other's CA file and be
// valid now. Names in certificates are not looked at: whoever the CA has signed belongs to the
// cluster. No session outlives its connection, so new files count from the next handshake on.
#pragma once

#include <memory>
#include <string>

#include "base/byte_stream.h"

namespace baton {

struct TlsFiles {
  std::string cert, key, ca;  // PEM
};

// What handshakes are made with. Immutable; any thread. Streams keep what they need of it.
class TlsContext {
 public:
  // Reads the files. Throws ConfigError, which names the file.
  explicit TlsContext(const TlsFiles& files);
  ~TlsContext();

  // The handshake runs inside the stream's first reads and writes, before any byte of the caller.
  std::unique_ptr<ByteStream> open(ScopedFd socket, StreamSide side) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton
