// TLS over a socket of ours, by OpenSSL, of which tls.cc is the only user (its SSL half). Called by
// credential_files.cc, router/kube_api.cc and tests.
//
// Among ourselves it is mutual TLS 1.3 (RFC 8446): both ends show a certificate, and each must lead
// to an authority in the other's CA file and be valid now. Names in certificates are not looked at:
// whoever the CA has signed belongs to the cluster. To a server of somebody else's it is TLS 1.2 or
// 1.3: the server's certificate must lead to an authority in our CA file and bear its name; we show
// none. No session outlives its connection, so new files count from the next handshake on.
#pragma once

#include <memory>
#include <string>

#include "base/byte_stream.h"

namespace baton {

struct TlsFiles {
  std::string cert, key, ca;  // PEM
};

// A server that is no Baton process.
struct TlsServer {
  std::string host;     // a name, or an address without brackets
  std::string ca_file;  // PEM
};

// What handshakes are made with. Immutable; any thread. Streams keep what they need of it.
class TlsContext {
 public:
  // Reads the files. Throws ConfigError, which names the file.
  explicit TlsContext(const TlsFiles& files);
  // For dialling `server` only.
  explicit TlsContext(const TlsServer& server);
  ~TlsContext();

  // The handshake runs inside the stream's first reads and writes, before any byte of the caller.
  std::unique_ptr<ByteStream> open(ScopedFd socket, StreamSide side) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton
