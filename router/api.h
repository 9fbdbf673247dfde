// The routes of the HTTP API. Parses on the text threads, runs client requests on the loop, answers
// the small routes itself. Router loop thread only, but for the text jobs it hands out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "config/config.h"
#include "router/dispatcher.h"
#include "router/http_types.h"
#include "router/metrics.h"
#include "router/openai_request.h"
#include "router/request.h"
#include "router/text_workers.h"

namespace baton {

struct ApiParts {
  Dispatcher& dispatcher;
  Placement& placement;
  RouterMetrics& metrics;
  TextWorkers& text_workers;
  const TextModel& model;
  const Clock& clock;
  std::function<void(std::function<void()>)> post;  // onto the loop, from any thread
};

class Api final : public HttpHandler {
 public:
  // `api_keys`: empty = no authentication.
  Api(const ApiParts& parts, const HttpConfig& config, std::string model_name,
      std::vector<std::string> api_keys);

  std::optional<HttpResponse> refuse_head(const HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  void refused(int status) override;

  // Keeps the facts in step with the workers that are up; they stay known when all are gone.
  void on_worker(const PeerInfo& peer);
  // From now on new completions are refused; what runs goes on.
  void drain() { draining_ = true; }
  void set_connections(size_t connections) { connections_ = connections; }

 private:
  struct Route {
    std::string method;
    void (Api::*handler)(HttpRequest, std::shared_ptr<HttpReply>);
    bool needs_key = false;
  };

  struct Match {
    std::string label;                    // of the path, for metrics
    const Route* route = nullptr;         // null: refused
    std::optional<HttpResponse> refusal;  // 404, 405 or 401
  };

  void add_routes();
  Match match(const HttpRequest& head) const;
  bool authorized(const HttpRequest& request) const;

  void chat_completions(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void completions(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void models(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void health(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void live(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void metrics(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void version(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void tokenize(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void detokenize(HttpRequest request, std::shared_ptr<HttpReply> reply);

  void generate(ApiKind kind, HttpRequest request, std::shared_ptr<HttpReply> reply);
  // Runs `work` on a text thread with the parsed body, sends its response.
  void answer_by_text(HttpRequest request, std::shared_ptr<HttpReply> reply,
                      std::function<HttpResponse(const Json& body)> work);
  HttpResponse text_queue_full();
  Status check_body(const HttpRequest& request) const;
  Json model_json() const;
  std::string random_id();

  const ApiParts parts_;
  const HttpConfig config_;
  const std::vector<std::string> api_keys_;
  std::multimap<std::string, Route> routes_;  // by path
  ModelFacts facts_;
  std::mt19937_64 random_;
  bool draining_ = false;
  size_t connections_ = 0;
};

}  // namespace baton
