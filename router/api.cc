#include "router/api.h"

#include <algorithm>
#include <utility>

#include "base/build_info.h"
#include "base/metrics.h"
#include "router/json_fields.h"
#include "router/openai_error.h"
#include "router/openai_messages.h"

namespace baton {
namespace {

constexpr const char* kModelPrefix = "/v1/models/";

// In time that depends on the lengths alone.
bool equal_keys(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
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

Api::Api(const ApiParts& parts, const HttpConfig& config, std::string model_name,
         std::vector<std::string> api_keys)
    : parts_(parts),
      config_(config),
      api_keys_(std::move(api_keys)),
      facts_{.name = std::move(model_name), .created_s = unix_time_s()},
      random_((static_cast<uint64_t>(std::random_device()()) << 32) ^ std::random_device()()) {
  facts_.vocab_size = parts.model.tokenizer->vocab_size();
  add_routes();
}

void Api::add_routes() {
  const auto add = [this](const char* path, const char* method,
                          void (Api::*handler)(HttpRequest, std::shared_ptr<HttpReply>),
                          bool needs_key = false) {
    routes_.emplace(path, Route{method, handler, needs_key});
  };
  for (const char* prefix : {"/v1", ""}) {
    const std::string base = prefix;
    add((base + "/chat/completions").c_str(), "POST", &Api::chat_completions, true);
    add((base + "/completions").c_str(), "POST", &Api::completions, true);
    add((base + "/models").c_str(), "GET", &Api::models, true);
  }
  add("/tokenize", "POST", &Api::tokenize, true);
  add("/detokenize", "POST", &Api::detokenize, true);
  add("/health", "GET", &Api::health);
  add("/readyz", "GET", &Api::health);
  add("/ping", "GET", &Api::health);
  add("/ping", "POST", &Api::health);
  add("/livez", "GET", &Api::live);
  add("/metrics", "GET", &Api::metrics);
  add("/version", "GET", &Api::version);
}

bool Api::authorized(const HttpRequest& request) const {
  bool known = api_keys_.empty();
  for (const std::string& key : api_keys_) known |= equal_keys(key, request.credential);
  return known;
}

Api::Match Api::match(const HttpRequest& head) const {
  const bool one_model = head.path.starts_with(kModelPrefix);
  const auto [begin, end] = routes_.equal_range(one_model ? "/v1/models" : head.path);
  if (begin == end) {
    return {.label = "other",
            .refusal = error_response(404, "no such path: " + head.path.substr(0, 200))};
  }
  Match match{.label = begin->first};
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    const bool is_head = head.method == "HEAD" && entry.second.method == "GET";
    return is_head || entry.second.method == head.method;
  });
  if (found == end) {
    match.refusal =
        error_response(405, head.path + " takes " + begin->second.method + ", got " + head.method);
    match.refusal->headers.emplace_back("Allow", begin->second.method);
  } else if (found->second.needs_key && !authorized(head)) {
    match.refusal = error_response(
        Status(Code::kUnauthenticated,
               std::string(head.credential.empty() ? "no API key came with the request"
                                                   : "this API key is not known here") +
                   ", want \"Authorization: Bearer <key>\""));
  } else {
    match.route = &found->second;
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
  const std::string type = request.content_type.substr(0, request.content_type.find(';'));
  if (type.empty() || type == "application/json") return {};
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
  if (!status.ok()) return reply->send(error_response(status));
  const Admission room = parts_.dispatcher.admit(1);
  if (!room.status.ok()) return reply->send(error_response(room.status, room.retry_after_s));

  RequestOrigin origin{.id = request.request_id.empty() ? random_id() : request.request_id,
                       .model_name = facts_.name,
                       .context_len = facts_.context_len,
                       .seed = random_(),
                       .received_us = parts_.clock.now_us()};
  const bool queued = parts_.text_workers.submit([this, kind, facts = facts_,
                                                  body = std::move(request.body), origin, reply] {
    Result<Json> json = parse_json_object(body, config_.json_depth_max);
    const auto read = kind == ApiKind::kChat ? read_chat_request : read_completion_request;
    Result<ApiRequest> api =
        json.ok() ? read(*json, parts_.model, facts, config_) : Result<ApiRequest>(json.status());
    parts_.post([this, origin, reply, api = std::move(api)]() mutable {
      if (!api.ok()) return reply->send(error_response(api.status()));
      std::make_shared<ClientRequest>(RequestContext{parts_.dispatcher, parts_.placement,
                                                     parts_.metrics, parts_.model, parts_.clock},
                                      std::move(*api), std::move(origin), reply)
          ->start();
    });
  });
  if (!queued) reply->send(text_queue_full());
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
  if (!queued) reply->send(text_queue_full());
}

HttpResponse Api::text_queue_full() {
  parts_.metrics.rejected("text_queue_full");
  return error_response(Status(Code::kResourceExhausted,
                               "too many requests wait for a text thread, want at most "
                               "text_queue_max; try again later"));
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

void Api::models(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  if (!request.path.starts_with(kModelPrefix)) {
    return reply->send(json_response({{"object", "list"}, {"data", {model_json()}}}));
  }
  const std::string name = request.path.substr(std::string(kModelPrefix).size());
  if (name == facts_.name) return reply->send(json_response(model_json()));
  reply->send(error_response(Status(Code::kNotFound, "model: got \"" + name.substr(0, 100) +
                                                         "\", want \"" + facts_.name + "\"")));
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

void Api::tokenize(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  answer_by_text(std::move(request), std::move(reply), [this, facts = facts_](const Json& body) {
    FieldReader fields(body);
    EncodeOptions options;
    std::string text;
    bool with_names = false;
    fields.text("content", text);  // other servers' name of it
    fields.text("prompt", text);
    fields.boolean("add_special_tokens", options.add_special_tokens);
    fields.boolean("return_token_strs", with_names);
    if (!fields.status().ok()) return error_response(fields.status());
    const auto ids = body.contains("messages") ? encode_messages(body, parts_.model)
                                               : parts_.model.tokenizer->encode(text, options);
    if (!ids.ok()) return error_response(ids.status());
    Json names;
    if (with_names) {
      names = Json::array();
      for (const TokenId id : *ids) names.push_back(parts_.model.tokenizer->token_name(id));
    }
    return json_response({{"count", ids->size()},
                          {"max_model_len", facts.context_len},
                          {"tokens", *ids},
                          {"token_strs", names}});
  });
}

void Api::detokenize(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  answer_by_text(std::move(request), std::move(reply), [this](const Json& body) {
    FieldReader fields(body);
    std::vector<TokenId> ids;
    fields.token_ids("tokens", ids, parts_.model.tokenizer->vocab_size());
    if (fields.find("tokens") == nullptr)
      fields.complain("tokens", "nothing", "a list of token ids");
    if (!fields.status().ok()) return error_response(fields.status());
    const std::string text = decode(*parts_.model.tokenizer, ids, false);
    return json_response({{"prompt", text}, {"content", text}});
  });
}

std::string Api::random_id() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 24; ++i) id += kHex[random_() & 15];
  return id;
}

}  // namespace baton
