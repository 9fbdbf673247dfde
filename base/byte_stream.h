// One connected stream of bytes under a link. TCP today; TLS is another implementation of the same
// four verbs. Owned and called by one LinkConnection on the I/O thread.
#pragma once

#include <string_view>

#include "base/scoped_fd.h"
#include "base/status.h"

namespace baton {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual int fd() const = 0;  // to wait on
  // Bytes read or written; 0 when it would block; a Status once the stream has ended or failed.
  virtual Result<size_t> read(char* to, size_t bytes_max) = 0;
  virtual Result<size_t> write(std::string_view bytes) = 0;
};

class TcpStream final : public ByteStream {
 public:
  explicit TcpStream(ScopedFd socket) : socket_(std::move(socket)) {}
  int fd() const override { return socket_.get(); }
  Result<size_t> read(char* to, size_t bytes_max) override;
  Result<size_t> write(std::string_view bytes) override;

 private:
  ScopedFd socket_;
};

}  // namespace baton
