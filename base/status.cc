#include "base/status.h"

namespace baton {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kTooLarge:
      return "TOO_LARGE";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

std::string Status::to_string() const {
  return ok() ? "OK" : std::string(code_name(code_)) + ": " + message_;
}

Status invalid_argument(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}
Status unavailable(std::string message) {
  return {Code::kUnavailable, std::move(message)};
}
Status internal_error(std::string message) {
  return {Code::kInternal, std::move(message)};
}

}  // namespace baton
