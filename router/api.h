// The routes of the HTTP API. Parses on the text threads, runs client requests on the loop, answers
// the small routes itself. Router loop thread only, but for the text jobs it hands out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "config/config.h"
#include "router/api_keys.h"
#include "router/dispatcher.h"
#include "router/http_types.h"
#include "router/metrics.h"
#include "router/openai_request.h"
#include "router/refusal_log.h"
#include "router/request.h"
#include "router/static_files.h"
#include "router/text_workers.h"
#include "router/worker_list.h"

namespace baton {

struct ApiParts {
  Dispatcher& dispatcher;
  Placement& placement;
  RouterMetrics& metrics;
  TextWorkers& text_workers;
  const TextModel& model;
  const Clock& clock;
  std::function<void(std::function<void()>)> post;  // onto the loop, from any thread
  std::function<std::vector<WorkerList::Entry>()> discovery;
};

class Api final : public HttpHandler {
 public:
  // Reads config.api_keys_file: throws ConfigError.
  Api(const ApiParts& parts, const HttpConfig& config, std::string model_name);

  // Method and path of every route but those of static files, as openapi.json writes them.
  static std::vector<std::pair<std::string, std::string>> routes();

  std::optional<HttpResponse> refuse_head(const HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  void refused(int status) override;

  // Keeps the facts in step with the workers that are up; they stay known when all are gone.
  void on_worker(const PeerInfo& peer);
  // From now on new completions are refused; what runs goes on.
  void drain() { draining_ = true; }
  void set_connections(size_t connections) { connections_ = connections; }
  void refresh_keys() { api_keys_.refresh(); }

 private:
  struct Route {
    const char* path;
    const char* method;
    void (Api::*handler)(HttpRequest, std::shared_ptr<HttpReply>);
    bool needs_key = false;
  };

  struct Match {
    std::string label;                    // of the path, for metrics
    const Route* route = nullptr;         // null: refused
    std::optional<HttpResponse> refusal;  // 404, 405 or 401
  };

  static std::span<const Route> route_table();
  Match match(const HttpRequest& head) const;

  void chat_completions(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void completions(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void render_chat(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void render_completion(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void not_supported(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void models(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void one_model(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void health(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void live(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void metrics(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void version(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void debug_placement(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void tokenize(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void detokenize(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void tokenizer_info(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void static_file(HttpRequest request, std::shared_ptr<HttpReply> reply);

  void generate(ApiKind kind, HttpRequest request, std::shared_ptr<HttpReply> reply);
  // Runs `work` on a text thread with the parsed body, sends its response.
  void answer_by_text(HttpRequest request, std::shared_ptr<HttpReply> reply,
                      std::function<HttpResponse(const Json& body)> work);
  Status text_queue_full();
  // Answers a request for tokens with an error, and logs it.
  void refuse(const RequestOrigin& origin, HttpReply& reply, const Status& status,
              int64_t retry_after_s = 1);
  Status check_body(const HttpRequest& request) const;
  Json model_json() const;

  const ApiParts parts_;
  const HttpConfig config_;
  ApiKeys api_keys_;
  const StaticFiles static_files_{embedded_files()};
  std::multimap<std::string, const Route*> routes_;  // by path
  ModelFacts facts_;
  RefusalLog refusals_;
  std::mt19937_64 random_;
  bool draining_ = false;
  size_t connections_ = 0;
};

}  // namespace baton
