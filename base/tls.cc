#include "base/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace baton {
namespace {

constexpr const char* kPlainPeer =
    "the peer speaks plain text, want TLS: it has no link.tls_cert_file";
constexpr std::string_view kBindingLabel = "EXPORTER-baton-hello";
constexpr size_t kBindingBytes = 32;
// RFC 8446, 5.5: AES-GCM may protect 2^24.5 records of 16 KiB; small ones count as well.
constexpr size_t kKeyBytesMax = size_t{32} << 30;
constexpr uint8_t kHandshakeRecord = 0x16;
constexpr uint8_t kAlertRecord = 0x15;

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using SslContext = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;
using SslConnection = std::unique_ptr<SSL, FreeWith<SSL_free>>;

// The oldest error is the cause; the others are its echo.
std::string last_error() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "error " + std::to_string(error);
}

void require(bool good, const char* setting, const std::string& file) {
  if (!good) throw ConfigError(std::string(setting) + ": " + file + ": " + last_error());
}

SslContext make_context(int version_min) {
  ERR_clear_error();
  SslContext context(SSL_CTX_new(TLS_method()));
  SSL_CTX* const ctx = context.get();
  CHECK(ctx != nullptr && SSL_CTX_set_min_proto_version(ctx, version_min) == 1)
      << "OpenSSL has no TLS of version " << version_min;
  SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(ctx, 0);
  return context;
}

SslContext make_mutual_context(const TlsFiles& files) {
  SslContext context = make_context(TLS1_3_VERSION);
  SSL_CTX* const ctx = context.get();
  require(SSL_CTX_load_verify_locations(ctx, files.ca.c_str(), nullptr) == 1, "link.tls_ca_file",
          files.ca);
  require(SSL_CTX_use_certificate_chain_file(ctx, files.cert.c_str()) == 1, "link.tls_cert_file",
          files.cert);
  require(SSL_CTX_use_PrivateKey_file(ctx, files.key.c_str(), SSL_FILETYPE_PEM) == 1,
          "link.tls_key_file", files.key);
  return context;
}

bool is_address(const std::string& host) {
  in6_addr bytes;
  return inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

SslContext make_client_context(const TlsServer& server) {
  SslContext context = make_context(TLS1_2_VERSION);
  require(SSL_CTX_load_verify_locations(context.get(), server.ca_file.c_str(), nullptr) == 1,
          "kube.ca_file", server.ca_file);
  // A certificate bears addresses apart from names.
  X509_VERIFY_PARAM* const wanted = SSL_CTX_get0_param(context.get());
  const int set = is_address(server.host)
                      ? X509_VERIFY_PARAM_set1_ip_asc(wanted, server.host.c_str())
                      : X509_VERIFY_PARAM_set1_host(wanted, server.host.c_str(), 0);
  CHECK(set == 1) << "OpenSSL does not take the host " << server.host;
  return context;
}

class TlsStream final : public ByteStream {
 public:
  // `server_name`: to be told to the other end (RFC 6066, 3), if not empty.
  TlsStream(SSL_CTX* context, ScopedFd socket, StreamSide side, const std::string& server_name)
      : socket_(std::move(socket)), side_(side), ssl_(SSL_new(context)) {
    CHECK(ssl_ != nullptr && SSL_set_fd(ssl_.get(), socket_.get()) == 1) << "SSL: no memory";
    if (!server_name.empty()) SSL_set_tlsext_host_name(ssl_.get(), server_name.c_str());
    if (side == StreamSide::kDialer) {
      SSL_set_connect_state(ssl_.get());
    } else {
      SSL_set_accept_state(ssl_.get());
    }
  }

  int fd() const override { return socket_.get(); }

  Result<size_t> read(char* to, size_t bytes_max) override {
    if (Status status = check_peer_speaks_tls(); !status.ok()) return status;
    size_t n = 0;
    ERR_clear_error();
    const int rc = SSL_read_ex(ssl_.get(), to, bytes_max, &n);
    return outcome(rc, n);
  }

  Result<size_t> write(std::string_view bytes) override {
    if (Status status = check_peer_speaks_tls(); !status.ok()) return status;
    size_t n = 0;
    ERR_clear_error();
    const int rc = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &n);
    key_bytes_ += n;
    if (rc > 0 && key_bytes_ >= kKeyBytesMax) {
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);  // goes out with the next write
      key_bytes_ = 0;
    }
    return outcome(rc, n);
  }

  Result<size_t> write_gathered(std::span<const iovec> parts) override {
    size_t written = 0;
    for (const iovec& part : parts) {
      const std::string_view bytes(static_cast<const char*>(part.iov_base), part.iov_len);
      for (size_t at = 0; at < bytes.size();) {
        const Result<size_t> n = write(bytes.substr(at));
        if (!n.ok()) return n;
        if (*n == 0) return written;
        at += *n;
        written += *n;
      }
    }
    return written;
  }

  // In a handshake it is OpenSSL that wants to write or read, whatever the caller has.
  bool wants_write(bool pending) const override {
    if (SSL_is_init_finished(ssl_.get()) == 0) return connecting_ || SSL_want_write(ssl_.get());
    return pending;
  }

  bool buffered() const override { return SSL_pending(ssl_.get()) > 0; }

  std::string channel_binding() const override {
    std::array<unsigned char, kBindingBytes> secret;
    CHECK(SSL_export_keying_material(ssl_.get(), secret.data(), secret.size(), kBindingLabel.data(),
                                     kBindingLabel.size(), nullptr, 0, 0) == 1)
        << "a channel binding is asked for before the handshake";
    return {secret.begin(), secret.end()};
  }

 private:
  Result<size_t> outcome(int rc, size_t n) {
    connecting_ = false;
    if (rc > 0) return n;
    const int saved_errno = errno;
    switch (SSL_get_error(ssl_.get(), rc)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return size_t{0};
      case SSL_ERROR_ZERO_RETURN:
        return unavailable("closed by the peer");
      case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return unavailable(saved_errno == 0 ? "closed by the peer" : std::strerror(saved_errno));
      default:
        return failure();
    }
  }

  Status failure() {
    const unsigned long error = ERR_peek_error();
    if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
        ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
      ERR_clear_error();
      return unavailable("closed by the peer");
    }
    const long verified = SSL_get_verify_result(ssl_.get());
    const bool plain =
        ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER;
    const std::string reason = plain ? kPlainPeer : last_error();
    ERR_clear_error();
    if (verified != X509_V_OK)
      return refused("the peer's certificate: " +
                     std::string(X509_verify_cert_error_string(verified)));
    // OpenSSL counts a peer's alert as SSL_AD_REASON_OFFSET and its number (RFC 8446, 6).
    if (ERR_GET_REASON(error) > SSL_AD_REASON_OFFSET)
      return refused(
          "the peer does not take our certificate: " +
          std::string(SSL_alert_desc_string_long(ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET)));
    return refused(reason);
  }

  static Status refused(const std::string& reason) {
    return Status(Code::kUnauthenticated, "TLS: " + reason);
  }

  // A plain peer's first byte says so; OpenSSL would only complain of a wrong version number.
  Status check_peer_speaks_tls() {
    // What came between an earlier look and OpenSSL's own read has not been seen here.
    if (BIO_number_read(SSL_get_rbio(ssl_.get())) > 0) first_byte_seen_ = true;
    if (first_byte_seen_) return {};
    uint8_t first = 0;
    const ssize_t n = ::recv(socket_.get(), &first, 1, MSG_PEEK);
    if (n == 0) return unavailable("closed by the peer");
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return {};
    if (n < 0) return unavailable(std::strerror(errno));
    first_byte_seen_ = true;
    if (first == kHandshakeRecord || first == kAlertRecord) return {};
    if (side_ == StreamSide::kAcceptor) {
      // Tells a plain dialer why: a fatal alert "handshake failure".
      constexpr std::array<uint8_t, 7> kAlert = {kAlertRecord, 3, 3, 0, 2, 2, 40};
      [[maybe_unused]] const ssize_t told =
          ::send(socket_.get(), kAlert.data(), kAlert.size(), MSG_NOSIGNAL);
    }
    return refused(kPlainPeer);
  }

  ScopedFd socket_;
  const StreamSide side_;
  const SslConnection ssl_;
  bool connecting_ = side_ == StreamSide::kDialer;  // nothing has been tried on the socket
  bool first_byte_seen_ = false;
  size_t key_bytes_ = 0;  // written under the present key
};

}  // namespace

struct TlsContext::Impl {
  SslContext context;
  std::string server_name;
};

TlsContext::TlsContext(const TlsFiles& files)
    : impl_(std::make_unique<Impl>(Impl{make_mutual_context(files), ""})) {}

TlsContext::TlsContext(const TlsServer& server)
    : impl_(std::make_unique<Impl>(
          Impl{make_client_context(server), is_address(server.host) ? "" : server.host})) {}

TlsContext::~TlsContext() = default;

std::unique_ptr<ByteStream> TlsContext::open(ScopedFd socket, StreamSide side) const {
  return std::make_unique<TlsStream>(impl_->context.get(), std::move(socket), side,
                                     impl_->server_name);
}

}  // namespace baton
