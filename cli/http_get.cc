#include "cli/http_get.h"

#include <curl/curl.h>

#include <memory>

namespace baton {

namespace {

size_t append(char* data, size_t size, size_t count, void* user) {
  static_cast<std::string*>(user)->append(data, size * count);
  return size * count;
}

}  // namespace

HttpText http_get(const std::string& url) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  HttpText reply;
  curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &reply.body);
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT_MS, 5000L);
  curl_easy_setopt(easy.get(), CURLOPT_NOSIGNAL, 1L);
  const CURLcode code = curl_easy_perform(easy.get());
  if (code == CURLE_OK) {
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  } else {
    reply.error = curl_easy_strerror(code);
  }
  return reply;
}

}  // namespace baton
