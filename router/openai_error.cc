#include "router/openai_error.h"

#include <nlohmann/json.hpp>

#include "router/json_text.h"

namespace baton {
namespace {

struct Row {
  Code code;
  int http_status;
  const char* type;
};

constexpr Row kRows[] = {
    {Code::kOk, 200, ""},
    {Code::kInvalidArgument, 400, "invalid_request_error"},
    {Code::kUnauthenticated, 401, "authentication_error"},
    {Code::kNotFound, 404, "not_found_error"},
    {Code::kTooLarge, 413, "invalid_request_error"},
    {Code::kResourceExhausted, 429, "rate_limit_error"},
    {Code::kUnavailable, 503, "unavailable_error"},
    {Code::kDeadlineExceeded, 504, "timeout_error"},
    {Code::kCancelled, 499, "cancelled_error"},
    {Code::kInternal, 500, "server_error"},
};

const Row& row_of(Code code) {
  for (const Row& row : kRows) {
    if (row.code == code) return row;
  }
  CHECK(false) << "code " << static_cast<int>(code) << " has no HTTP status";
  return kRows[0];
}

// "max_tokens: got -3, want ..." is about the field max_tokens.
Json param_of(const Status& status) {
  const size_t colon = status.message().find(": ");
  if (status.code() != Code::kInvalidArgument && status.code() != Code::kNotFound) return nullptr;
  if (colon == std::string::npos || colon == 0) return nullptr;
  const std::string subject = status.message().substr(0, colon);
  const size_t other = subject.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.[]");
  if (other != std::string::npos) return nullptr;
  return subject;
}

Json code_of(const Status& status) {
  // Clients look for this code, and some for the words, to shorten the prompt and try again.
  if (status.message().find("maximum context length") != std::string::npos) {
    return "context_length_exceeded";
  }
  if (status.code() == Code::kNotFound) return "model_not_found";
  if (status.code() == Code::kUnauthenticated) return "invalid_api_key";
  return nullptr;
}

std::string error_json(const std::string& message, const char* type, Json param, Json code) {
  return dump_json({{"error",
                     {{"message", message},
                      {"type", type},
                      {"param", std::move(param)},
                      {"code", std::move(code)}}}});
}

}  // namespace

int http_status(Code code) {
  return row_of(code).http_status;
}

std::string error_json(const Status& status) {
  return error_json(status.message(), row_of(status.code()).type, param_of(status),
                    code_of(status));
}

HttpResponse error_response(const Status& status, int64_t retry_after_s) {
  HttpResponse response{.status = http_status(status.code()), .body = error_json(status)};
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  }
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse error_response(int http_status, const std::string& message) {
  const char* type = http_status < 500 ? "invalid_request_error" : "server_error";
  return {.status = http_status, .body = error_json(message, type, nullptr, nullptr)};
}

}  // namespace baton
