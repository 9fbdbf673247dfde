// The certificate that the router shows its clients, read again when its files change. TLS 1.2 and
// 1.3. Connections keep the context they began with. Owned by the server; router loop thread only.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "router/watched_files.h"

namespace baton {

class HttpTls {
 public:
  // PEM files; both empty: plain HTTP. Throws ConfigError for one without the other, and for files
  // that cannot be used.
  HttpTls(const std::string& cert_file, const std::string& key_file);

  // Reads changed files. Ones that do not work (half replaced) leave what there was and log an
  // error.
  void refresh();

  // For a connection that begins now; null: plain.
  std::shared_ptr<boost::asio::ssl::context> context() const { return context_; }

 private:
  std::shared_ptr<boost::asio::ssl::context> load() const;

  const std::string cert_file_, key_file_;
  WatchedFiles watched_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace baton
