#include "router/http_tls.h"

#include <openssl/ssl.h>

#include "base/log.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace baton {
namespace ssl = boost::asio::ssl;

namespace {

void require(const boost::system::error_code& error, const char* setting, const std::string& file) {
  if (error) throw ConfigError(std::string(setting) + ": " + file + ": " + error.message());
}

}  // namespace

HttpTls::HttpTls(const std::string& cert_file, const std::string& key_file)
    : cert_file_(cert_file), key_file_(key_file), watched_({cert_file, key_file}) {
  if (cert_file_.empty() != key_file_.empty()) {
    throw ConfigError("http.tls_cert_file, http.tls_key_file: got one of the two, want both");
  }
  if (cert_file_.empty()) return;
  warn_if_readable_by_others("http.tls_key_file", key_file_);
  context_ = load();
}

void HttpTls::refresh() {
  if (context_ == nullptr || !watched_.changed()) return;
  try {
    context_ = load();
    log_info("http_certificate_reloaded", {{"file", cert_file_}});
  } catch (const ConfigError& error) {
    log_error("http_certificate_kept", {{"reason", error.what()}});
  }
}

std::shared_ptr<ssl::context> HttpTls::load() const {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  boost::system::error_code error;
  context->use_certificate_chain_file(cert_file_, error);
  require(error, "http.tls_cert_file", cert_file_);
  context->use_private_key_file(key_file_, ssl::context::pem, error);  // checks that it fits
  require(error, "http.tls_key_file", key_file_);
  return context;
}

}  // namespace baton
