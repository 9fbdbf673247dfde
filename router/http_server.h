// The router's loop: one thread that accepts connections, runs their sessions, timers and whatever
// is posted to it. Everything in router/ that says "router loop thread" runs inside run().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "config/config.h"
#include "router/http_types.h"

namespace baton {

class HttpServer {
 public:
  // Listens at once, so that port() is known; accepts when run. `handler` must outlive run().
  // Throws ConfigError when it cannot listen.
  HttpServer(const HttpConfig& config, HttpHandler& handler);
  ~HttpServer();

  // Until stop(); the calling thread becomes the loop.
  void run();
  // Thread-safe. `job` runs on the loop.
  void post(std::function<void()> job);
  // Loop thread, or before run(): `tick` is called every `period_ms` from now on.
  void every(int64_t period_ms, std::function<void()> tick);

  // Loop thread. Closes idle connections; answers under way go on. New connections get one answer
  // each, so that probes and late clients hear that this process is leaving.
  void drain();
  // Loop thread. Ends run(); what is open is cut.
  void stop();
  size_t connections() const;  // loop thread
  size_t busy() const;         // those with a request or an answer under way; loop thread
  int32_t port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
