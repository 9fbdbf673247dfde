#include "router/static_files.h"

#include <xxhash.h>

#include <cstdio>

#include "base/check.h"

namespace baton {
namespace {

// For the page: it loads its own files and talks to this server, nothing else.
constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string etag_of(std::string_view bytes) {
  char text[24];
  std::snprintf(text, sizeof(text), "\"%016llx\"",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text;
}

}  // namespace

StaticFiles::StaticFiles(std::span<const StaticFile> files) {
  for (const StaticFile& file : files) {
    entries_[std::string(file.path)] = {file, etag_of(file.bytes)};
  }
}

std::vector<std::string> StaticFiles::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, entry] : entries_) paths.push_back(path);
  return paths;
}

HttpResponse StaticFiles::answer(const HttpRequest& request) const {
  const auto found = entries_.find(request.path);
  CHECK(found != entries_.end()) << "no static file at " << request.path;
  const Entry& entry = found->second;
  HttpResponse response{.content_type = std::string(entry.file.content_type)};
  // Kept by browsers, but asked for again each time: a new router may have a new page.
  response.headers = {
      {"ETag", entry.etag}, {"Cache-Control", "no-cache"}, {"X-Content-Type-Options", "nosniff"}};
  if (entry.file.content_type.starts_with("text/html")) {
    response.headers.emplace_back("Content-Security-Policy", kPagePolicy);
    response.headers.emplace_back("Referrer-Policy", "no-referrer");
  }
  // The header may list several tags, weak ones (W/"...") too, or be "*": any.
  const bool same =
      request.if_none_match == "*" || request.if_none_match.find(entry.etag) != std::string::npos;
  if (same) {
    response.status = 304;
  } else {
    response.body = entry.file.bytes;
  }
  return response;
}

}  // namespace baton
