// The process baton-router: its parts, in the order of the data, and its loop. Threads: the loop
// (whoever calls run()), the text threads, the link's I/O thread; the last two only post to the
// loop.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/link.h"
#include "config/config.h"
#include "router/api.h"
#include "router/dispatcher.h"
#include "router/http_server.h"
#include "router/metrics.h"
#include "router/openai_request.h"
#include "router/placement.h"
#include "router/text_workers.h"
#include "router/worker_list.h"

namespace baton {

// Reads what the router needs of a model: no weights. `chat_template_file` not empty: it goes
// before the model's own. Throws ConfigError.
TextModel load_text_model(const std::string& path, const std::string& chat_template_file = "");

class Router {
 public:
  // Listens when it returns. Throws ConfigError.
  Router(const RouterConfig& config, TextModel model);
  ~Router();

  void run();    // until drained or stopped
  void drain();  // thread-safe: refuses new requests, finishes those it has (at most
                 // drain_timeout_ms), ends run()
  void stop();   // thread-safe: ends run() now
  int32_t port() const { return server_->port(); }

 private:
  void on_link_event(LinkEvent event);      // loop thread
  void check_worker(const PeerInfo& peer);  // warns of what will not work
  void log_worker(const char* event, LinkId link, const std::string& reason);

  const RouterConfig config_;
  const SystemClock clock_;
  const TextModel model_;
  RouterMetrics metrics_;
  std::unique_ptr<Links> links_;
  Placement placement_;
  std::unique_ptr<Dispatcher> dispatcher_;
  TextWorkers text_workers_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<WorkerList> worker_list_;
  std::set<std::pair<std::string, std::string>> unlike_told_;  // pairs of kv_compat_id
};

}  // namespace baton
