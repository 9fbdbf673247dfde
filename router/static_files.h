// Files that the router carries inside itself and serves as they are: the chat page and the API's
// description. The list is made at build time by baton_embed() in router/CMakeLists.txt. Router
// loop thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/http_types.h"

namespace baton {

struct StaticFile {
  std::string_view path;  // as requested: "/", "/openapi.json"
  std::string_view content_type;
  std::string_view bytes;  // lives as long as the process
};

std::span<const StaticFile> embedded_files();

class StaticFiles {
 public:
  explicit StaticFiles(std::span<const StaticFile> files);

  std::vector<std::string> paths() const;
  // The file, or 304 when the client has the very same one. REQUIRES: request.path is one of
  // paths().
  HttpResponse answer(const HttpRequest& request) const;

 private:
  struct Entry {
    StaticFile file;
    std::string etag;  // of the bytes, with its quotes (RFC 9110, 8.8.3)
  };
  std::map<std::string, Entry> entries_;  // by path
};

}  // namespace baton
