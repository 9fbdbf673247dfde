#include "router/api.h"

#include <strings.h>

#include <algorithm>
#include <utility>

#include "base/build_info.h"
#include "base/metrics.h"
#include "router/http_rules.h"
#include "router/openai_error.h"
#include "router/placement_view.h"
#include "router/text_api.h"

namespace baton {
namespace {

constexpr const char* kModelPath = "/v1/models/{model}";
constexpr const char* kShortModelPath = "/models/{model}";

// The path as the table of routes writes it.
std::string pattern_of(const std::string& path) {
  for (const std::string pattern : {kModelPath, kShortModelPath}) {
    const std::string before = pattern.substr(0, pattern.find('{'));
    if (path.size() > before.size() && path.starts_with(before)) return pattern;
  }
  return path;
}

// Passes an answer on and counts its status.
class CountedReply final : public HttpReply {
 public:
  CountedReply(std::shared_ptr<HttpReply> inner, RouterMetrics& metrics, std::string route)
      : inner_(std::move(inner)), metrics_(metrics), route_(std::move(route)) {}

  void send(HttpResponse response) override {
    metrics_.http_answer(route_, response.status);
    inner_->send(std::move(response));
  }
  void start_events() override {
    metrics_.http_answer(route_, 200);
    inner_->start_events();
  }
  void write(std::string_view events) override { inner_->write(events); }
  void end() override { inner_->end(); }
  void on_gone(std::function<void()> gone) override { inner_->on_gone(std::move(gone)); }

 private:
  const std::shared_ptr<HttpReply> inner_;
  RouterMetrics& metrics_;
  const std::string route_;
};

HttpResponse json_response(const Json& body) {
  return {.body = dump_json(body)};
}

}  // namespace

std::span<const Api::Route> Api::route_table() {
  static constexpr Route kRoutes[] = {
      {"/v1/chat/completions", "POST", &Api::chat_completions, true},
      {"/v1/completions", "POST", &Api::completions, true},
      {"/v1/chat/completions/render", "POST", &Api::render_chat, true},
      {"/v1/completions/render", "POST", &Api::render_completion, true},
      {"/v1/models", "GET", &Api::models, true},
      {kModelPath, "GET", &Api::one_model, true},
      {"/v1/embeddings", "POST", &Api::not_supported, true},
      {"/v1/responses", "POST", &Api::not_supported, true},
      // For clients whose base address lacks the "/v1".
      {"/chat/completions", "POST", &Api::chat_completions, true},
      {"/completions", "POST", &Api::completions, true},
      {"/models", "GET", &Api::models, true},
      {kShortModelPath, "GET", &Api::one_model, true},
      {"/tokenize", "POST", &Api::tokenize, true},
      {"/detokenize", "POST", &Api::detokenize, true},
      {"/tokenizer_info", "GET", &Api::tokenizer_info, true},
      {"/debug/placement", "GET", &Api::debug_placement, true},
      {"/health", "GET", &Api::health},
      {"/readyz", "GET", &Api::health},
      {"/ping", "GET", &Api::health},
      {"/ping", "POST", &Api::health},
      {"/livez", "GET", &Api::live},
      {"/metrics", "GET", &Api::metrics},
      {"/version", "GET", &Api::version},
  };
  return kRoutes;
}

std::vector<std::pair<std::string, std::string>> Api::routes() {
  std::vector<std::pair<std::string, std::string>> routes;
  for (const Route& route : route_table()) routes.emplace_back(route.method, route.path);
  return routes;
}

Api::Api(const ApiParts& parts, const HttpConfig& config, std::string model_name)
    : parts_(parts),
      config_(config),
      api_keys_(config.api_keys_file),
      facts_{.name = std::move(model_name), .created_s = unix_time_s()},
      refusals_(parts.clock, config.log_requests),
      random_((static_cast<uint64_t>(std::random_device()()) << 32) ^ std::random_device()()) {
  static constexpr Route kStatic{"", "GET", &Api::static_file};
  facts_.vocab_size = parts.model.tokenizer->vocab_size();
  for (const Route& route : route_table()) routes_.emplace(route.path, &route);
  for (const std::string& path : static_files_.paths()) routes_.emplace(path, &kStatic);
}

Api::Match Api::match(const HttpRequest& head) const {
  const auto [begin, end] = routes_.equal_range(pattern_of(head.path));
  if (begin == end) {
    return {.label = "other",
            .refusal = error_response(
                404, "no such path: " + head.path.substr(0, 200) + ", want one of /openapi.json")};
  }
  Match match{.label = begin->first};
  std::string allowed;
  for (auto it = begin; it != end; ++it) {
    const std::string method = it->second->method;
    if (method == head.method || (head.method == "HEAD" && method == "GET")) {
      match.route = it->second;
    }
    allowed += (allowed.empty() ? "" : ", ") + method + (method == "GET" ? ", HEAD" : "");
  }
  if (match.route == nullptr) {
    match.refusal = error_response(
        405, head.path.substr(0, 200) + " takes " + allowed + ", got " + head.method.substr(0, 20));
    match.refusal->headers.emplace_back("Allow", allowed + ", OPTIONS");
  } else if (match.route->needs_key && !api_keys_.accept(head.credential)) {
    match.refusal = error_response(
        Status(Code::kUnauthenticated,
               std::string(head.credential.empty() ? "no API key came with the request"
                                                   : "this API key is not known here") +
                   ", want \"Authorization: Bearer <key>\""));
  }
  return match;
}

std::optional<HttpResponse> Api::refuse_head(const HttpRequest& head) {
  if (head.method == "OPTIONS") return std::nullopt;  // answered for any path
  Match found = match(head);
  if (found.refusal) parts_.metrics.http_answer(found.label, found.refusal->status);
  return std::move(found.refusal);
}

void Api::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  Match found = match(request);
  reply = std::make_shared<CountedReply>(std::move(reply), parts_.metrics, found.label);
  if (found.refusal) return reply->send(std::move(*found.refusal));
  (this->*found.route->handler)(std::move(request), std::move(reply));
}

void Api::refused(int status) {
  parts_.metrics.http_answer("other", status);
}

void Api::on_worker(const PeerInfo& peer) {
  if (peer.context_len > 0) {
    facts_.context_len =
        facts_.context_len == 0 ? peer.context_len : std::min(facts_.context_len, peer.context_len);
  }
  // Weights may be padded to more rows than the tokeniser has names, or the other way round.
  if (peer.vocab_size > 0) facts_.vocab_size = std::min(facts_.vocab_size, peer.vocab_size);
}

void Api::chat_completions(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  generate(ApiKind::kChat, std::move(request), std::move(reply));
}

void Api::completions(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  generate(ApiKind::kCompletion, std::move(request), std::move(reply));
}

Status Api::check_body(const HttpRequest& request) const {
  std::string type = request.content_type.substr(0, request.content_type.find(';'));
  while (type.ends_with(' ')) type.pop_back();
  if (type.empty() || strcasecmp(type.c_str(), "application/json") == 0) return {};
  return invalid_argument("content-type: got " + type.substr(0, 100) + ", want application/json");
}

void Api::generate(ApiKind kind, HttpRequest request, std::shared_ptr<HttpReply> reply) {
  Status status = check_body(request);
  if (status.ok() && draining_) {
    parts_.metrics.rejected("shutting_down");
    status = unavailable("this server is shutting down");
  }
  if (status.ok() && facts_.context_len == 0) {
    parts_.metrics.rejected("no_worker");
    status = unavailable("no worker has joined yet; try again later");
  }
  RequestOrigin origin{.id = request.request_id,
                       .traceparent = request.traceparent,
                       .logged = config_.log_requests,
                       .model_name = facts_.name,
                       .context_len = facts_.context_len,
                       .seed = random_(),
                       .received_us = parts_.clock.now_us()};
  if (!status.ok()) return refuse(origin, *reply, status);
  const Admission room = parts_.dispatcher.admit(1);
  if (!room.status.ok()) return refuse(origin, *reply, room.status, room.retry_after_s);
  const bool queued =
      parts_.text_workers.submit([this, kind, facts = facts_, id_sent = request.request_id_sent,
                                  body = std::move(request.body), origin, reply] {
        Result<Json> json = parse_json_object(body, config_.json_depth_max);
        const auto read = kind == ApiKind::kChat ? read_chat_request : read_completion_request;
        Result<ApiRequest> api = json.ok() ? read(*json, parts_.model, facts, config_)
                                           : Result<ApiRequest>(json.status());
        parts_.post([this, origin, id_sent, reply, api = std::move(api)]() mutable {
          if (!api.ok()) return refuse(origin, *reply, api.status());
          if (!id_sent && !api->request_id.empty()) origin.id = api->request_id;
          std::make_shared<ClientRequest>(
              RequestContext{parts_.dispatcher, parts_.placement, parts_.metrics, refusals_,
                             parts_.model, parts_.clock},
              std::move(*api), std::move(origin), reply)
              ->start();
        });
      });
  if (!queued) refuse(origin, *reply, text_queue_full());
}

void Api::refuse(const RequestOrigin& origin, HttpReply& reply, const Status& status,
                 int64_t retry_after_s) {
  refusals_.add(origin.id, origin.traceparent, status);
  reply.send(error_response(status, retry_after_s));
}

void Api::answer_by_text(HttpRequest request, std::shared_ptr<HttpReply> reply,
                         std::function<HttpResponse(const Json& body)> work) {
  const Status status = check_body(request);
  if (!status.ok()) return reply->send(error_response(status));
  const bool queued = parts_.text_workers.submit(
      [this, body = std::move(request.body), reply, work = std::move(work)] {
        const Result<Json> json = parse_json_object(body, config_.json_depth_max);
        HttpResponse response = json.ok() ? work(*json) : error_response(json.status());
        parts_.post([reply, response = std::move(response)]() mutable {
          reply->send(std::move(response));
        });
      });
  if (!queued) reply->send(error_response(text_queue_full()));
}

Status Api::text_queue_full() {
  parts_.metrics.rejected("text_queue_full");
  return Status(Code::kResourceExhausted,
                "too many requests wait for a text thread, want at most text_queue_max; try again "
                "later");
}

Json Api::model_json() const {
  return {{"id", facts_.name},
          {"object", "model"},
          {"created", facts_.created_s},
          {"owned_by", "baton"},
          {"root", facts_.name},
          {"parent", nullptr},
          {"max_model_len", facts_.context_len}};
}

void Api::models(HttpRequest, std::shared_ptr<HttpReply> reply) {
  reply->send(json_response({{"object", "list"}, {"data", {model_json()}}}));
}

void Api::one_model(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const size_t begin = pattern_of(request.path).find('{');
  const std::string name = percent_decoded(request.path.substr(begin));
  if (name == facts_.name) return reply->send(json_response(model_json()));
  reply->send(error_response(Status(Code::kNotFound, "model: got \"" + name.substr(0, 100) +
                                                         "\", want \"" + facts_.name + "\"")));
}

void Api::not_supported(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  reply->send(error_response(
      404, request.path +
               " is not supported yet, want /v1/chat/completions or /v1/completions: this server "
               "generates text"));
}

void Api::health(HttpRequest, std::shared_ptr<HttpReply> reply) {
  if (!draining_ && parts_.placement.ready()) return reply->send({.content_type = "text/plain"});
  reply->send(error_response(
      unavailable(draining_ ? "this server is shutting down" : "no worker that decodes is up")));
}

void Api::live(HttpRequest, std::shared_ptr<HttpReply> reply) {
  reply->send({.content_type = "text/plain"});
}

void Api::metrics(HttpRequest, std::shared_ptr<HttpReply> reply) {
  parts_.metrics.set_load(parts_.dispatcher.active(), parts_.dispatcher.waiting(), connections_);
  parts_.metrics.set_workers(parts_.placement.workers());
  reply->send({.content_type = kMetricsContentType, .body = parts_.metrics.text()});
}

void Api::version(HttpRequest, std::shared_ptr<HttpReply> reply) {
  reply->send(json_response({{"version", build_info().version}, {"commit", build_info().commit}}));
}

void Api::debug_placement(HttpRequest, std::shared_ptr<HttpReply> reply) {
  reply->send(
      {.body = placement_json(parts_.placement, parts_.discovery(), parts_.clock.now_us())});
}

void Api::tokenize(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  answer_by_text(std::move(request), std::move(reply), [this, facts = facts_](const Json& body) {
    return baton::tokenize(body, parts_.model, facts, config_);
  });
}

void Api::detokenize(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  answer_by_text(std::move(request), std::move(reply),
                 [this](const Json& body) { return baton::detokenize(body, parts_.model); });
}

void Api::tokenizer_info(HttpRequest, std::shared_ptr<HttpReply> reply) {
  reply->send(baton::tokenizer_info(parts_.model, facts_));
}

void Api::render_chat(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  answer_by_text(std::move(request), std::move(reply), [this, facts = facts_](const Json& body) {
    return render(ApiKind::kChat, body, parts_.model, facts, config_);
  });
}

void Api::render_completion(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  answer_by_text(std::move(request), std::move(reply), [this, facts = facts_](const Json& body) {
    return render(ApiKind::kCompletion, body, parts_.model, facts, config_);
  });
}

void Api::static_file(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  reply->send(static_files_.answer(request));
}

}  // namespace baton
