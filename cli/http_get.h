// One plain HTTP GET, for the command line tools.
#pragma once

#include <string>

namespace baton {

struct HttpText {
  long status = 0;  // 0: no answer
  std::string body;
  std::string error;  // why there was no answer
};
HttpText http_get(const std::string& url);

}  // namespace baton
