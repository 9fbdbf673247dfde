// Status and Result: failures at run time (bad request, no pages, peer gone). Messages carry
// subject, got, want: "max_tokens: got -3, want an integer from 1 to 4096".
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace baton {

enum class Code {
  kOk,
  kInvalidArgument,    // HTTP 400
  kUnauthenticated,    // HTTP 401
  kNotFound,           // HTTP 404
  kTooLarge,           // HTTP 413
  kResourceExhausted,  // HTTP 429: try again later
  kUnavailable,        // HTTP 503: no healthy worker, or a peer is gone
  kDeadlineExceeded,   // HTTP 504
  kCancelled,          // the client went away; nobody reads the answer
  kInternal,           // HTTP 500
};

const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string to_string() const;  // "INVALID_ARGUMENT: max_tokens: got -3, ..."

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

Status invalid_argument(std::string message);
Status unavailable(std::string message);
Status internal_error(std::string message);

// A value, or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {
    CHECK(!status_.ok()) << "a Result without a value needs a reason";
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& value() {
    CHECK(ok()) << status_.to_string();
    return *value_;
  }
  const T& value() const {
    CHECK(ok()) << status_.to_string();
    return *value_;
  }

 private:
  std::optional<T> value_;
  Status status_;
};

// Start-up and configuration errors are exceptions, caught once in main, printed as one line.
class ConfigError : public std::exception {
 public:
  explicit ConfigError(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

}  // namespace baton
