#include "router/http_rules.h"

#include <strings.h>

#include <cctype>
#include <charconv>
#include <cstdio>
#include <random>

namespace baton {
namespace {

const char* reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

// Browsers' user interfaces call from other origins; no cookies are involved, so any origin may.
void append_common(std::string& head, std::string_view request_id, bool keep_alive) {
  head += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  head +=
      "Access-Control-Allow-Origin: *\r\n"
      "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n";
  if (!request_id.empty()) head.append("X-Request-Id: ").append(request_id).append("\r\n");
}

}  // namespace

std::string answer_head(const HttpResponse& response, std::string_view request_id,
                        bool keep_alive) {
  std::string head =
      "HTTP/1.1 " + std::to_string(response.status) + " " + reason_phrase(response.status) + "\r\n";
  if (response.status != 204 && response.status != 304) {
    head += "Content-Type: " + response.content_type + "\r\n";
    head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  }
  append_common(head, request_id, keep_alive);
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  head += "\r\n";
  return head;
}

std::string events_head(std::string_view request_id, bool keep_alive, bool chunked) {
  std::string head =
      "HTTP/1.1 200 OK\r\n"
      "Content-Type: text/event-stream; charset=utf-8\r\n"
      "Cache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\n";
  if (chunked) head += "Transfer-Encoding: chunked\r\n";
  append_common(head, request_id, keep_alive && chunked);
  head += "\r\n";
  return head;
}

std::string body_chunk(std::string_view data) {
  char size[20];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  std::string chunk = size;
  chunk.append(data).append("\r\n");
  return chunk;
}

std::string_view last_chunk() {
  return "0\r\n\r\n";
}

HttpResponse preflight_response() {
  return {.status = 204,
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS"},
                      {"Access-Control-Allow-Headers", "*, Authorization"},
                      {"Access-Control-Max-Age", "86400"}}};
}

std::string framing_error(const std::vector<std::string_view>& encodings, bool has_length) {
  if (encodings.empty()) return "";
  constexpr std::string_view kChunked = "chunked";
  const std::string_view first = encodings.front();
  if (encodings.size() > 1 || first.size() != kChunked.size() ||
      strncasecmp(first.data(), kChunked.data(), kChunked.size()) != 0) {
    return "transfer-encoding: want \"chunked\" or none";
  }
  return has_length ? "content-length: want none together with transfer-encoding" : "";
}

std::string safe_request_id(std::string_view value) {
  constexpr size_t kMax = 128;
  if (value.empty() || value.size() > kMax) return "";
  for (const char c : value) {
    const bool safe = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                      c == '.' || c == ':';
    if (!safe) return "";
  }
  return std::string(value);
}

std::string random_request_id() {
  std::random_device device;
  std::string id(24, '0');
  for (size_t i = 0; i < id.size(); i += 8) {
    char digits[9];
    std::snprintf(digits, sizeof(digits), "%08x", device());
    id.replace(i, 8, digits, 8);
  }
  return id;
}

std::string safe_traceparent(std::string_view value) {
  // Later versions may add fields after these four.
  constexpr std::string_view kShape = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
  if (value.size() < kShape.size()) return "";
  value = value.substr(0, kShape.size());
  for (size_t i = 0; i < kShape.size(); ++i) {
    const char c = value[i];
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (kShape[i] == '-' ? c != '-' : !hex) return "";
  }
  return std::string(value);
}

std::string bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size() ||
      strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) {
    return "";
  }
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return std::string(authorization);
}

std::string path_of(std::string_view target) {
  return std::string(target.substr(0, target.find_first_of("?#")));
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace baton
