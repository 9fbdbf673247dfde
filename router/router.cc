#include "router/router.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "base/log.h"
#include "model/model_config.h"
#include "model/text_files.h"
#include "router/id_tokenizer.h"

namespace baton {
namespace {

constexpr int64_t kEverySecondMs = 1000;  // for what may be that old

uint64_t random_number() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// The last part of the path, without ".gguf".
std::string default_model_name(const RouterConfig& config) {
  if (!config.served_model_name.empty()) return config.served_model_name;
  std::string path = config.model;
  while (path.ends_with('/')) path.pop_back();
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

std::string read_template_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string source{std::istreambuf_iterator<char>(in), {}};
  if (!in || source.empty()) {
    throw ConfigError("chat_template_file: got " + path + ", want a readable Jinja file");
  }
  return source;
}

}  // namespace

TextModel load_text_model(const std::string& path, const std::string& chat_template_file) {
  const ModelConfig config = read_model_config(path);
  TextModel model;
  model.eos_ids = config.eos_ids;
  model.defaults = config.defaults;
  model.tokenizer = load_tokenizer(path);
  if (model.tokenizer == nullptr) {
    model.tokenizer = std::make_unique<IdTokenizer>(config.vocab_size, config.eos_ids);
    return model;
  }
  for (const TokenId id : model.tokenizer->eos_ids()) {
    if (std::find(model.eos_ids.begin(), model.eos_ids.end(), id) == model.eos_ids.end()) {
      model.eos_ids.push_back(id);
    }
  }
  const std::string source = chat_template_file.empty() ? load_chat_template(path)
                                                        : read_template_file(chat_template_file);
  if (!source.empty()) model.chat_template = std::make_unique<ChatTemplate>(source);
  model.chat_template_source = source;
  model.special_tokens = load_special_tokens(path);
  return model;
}

Router::Router(const RouterConfig& config, TextModel model)
    : config_(config),
      model_(std::move(model)),
      metrics_(default_model_name(config), config.metrics),
      placement_(config.route, random_number()),
      text_workers_(config.text_threads, static_cast<size_t>(config.text_queue_max)) {
  const PeerInfo self{.worker_id = "router", .epoch = random_number(), .role = Role::kRouter};
  links_ = std::make_unique<Links>(config.link, self, "", clock_, [this](LinkEvent event) {
    server_->post([this, event = std::move(event)]() mutable { on_link_event(std::move(event)); });
  });
  dispatcher_ =
      std::make_unique<Dispatcher>(config.route, self.epoch, *links_, clock_, placement_, metrics_);
  api_ = std::make_unique<Api>(
      ApiParts{*dispatcher_, placement_, metrics_, text_workers_, model_, clock_,
               [this](std::function<void()> job) { server_->post(std::move(job)); },
               [this] { return worker_list_->view(); }},
      config.http, default_model_name(config));
  server_ = std::make_unique<HttpServer>(config.http, *api_);
  worker_list_ = std::make_unique<WorkerList>(
      config, WorkerList::Links{
                  [this](const std::string& address) { links_->connect(address); },
                  [this](const std::string& address) { links_->release(address); },
                  [this](const std::string& address, const AddressHint& hint) {
                    server_->post([this, address, hint] { placement_.set_hint(address, hint); });
                  },
              });
}

Router::~Router() {
  worker_list_.reset();  // its thread speaks to links_
  // Both may still post to the loop.
  text_workers_.stop();
  links_.reset();
}

void Router::run() {
  worker_list_->start();
  server_->every(config_.loop_tick_ms, [this] {
    dispatcher_->on_timer();
    api_->set_connections(server_->connections());
    metrics_.set_links(links_->stats());
  });
  server_->every(kEverySecondMs, [this] {
    api_->refresh_keys();
    metrics_.set_stale_sources(worker_list_->stale_sources());
  });
  log_info("router_ready", {{"port", port()}, {"workers", config_.workers}});
  server_->run();
}

void Router::drain() {
  server_->post([this] {
    log_info("router_draining", {{"active", dispatcher_->active()}});
    api_->drain();
    server_->drain();
    const int64_t deadline_us = clock_.now_us() + config_.drain_timeout_ms * 1000;
    server_->every(config_.loop_tick_ms, [this, deadline_us] {
      const bool idle = dispatcher_->active() == 0 && server_->busy() == 0;
      if (idle || clock_.now_us() >= deadline_us) server_->stop();
    });
  });
}

void Router::stop() {
  server_->post([this] { server_->stop(); });
}

void Router::log_worker(const char* event, LinkId link, const std::string& reason) {
  const Worker* worker = placement_.find(link);
  if (worker == nullptr) return;
  log_info(event, {{"worker", worker->peer.worker_id},
                   {"role", role_name(worker->peer.role)},
                   {"kv_compat_id", worker->peer.kv_compat_id},
                   {"reason", reason}});
}

void Router::check_worker(const PeerInfo& peer) {
  for (const auto& [link, other] : placement_.workers()) {
    if (other.peer.kv_compat_id == peer.kv_compat_id) continue;
    // Once for two ids, however many workers have them and however often these come back.
    const auto ids = std::minmax(peer.kv_compat_id, other.peer.kv_compat_id);
    if (!unlike_told_.emplace(ids.first, ids.second).second) continue;
    log_warn("workers_do_not_mix", {{"worker", peer.worker_id},
                                    {"kv_compat_id", peer.kv_compat_id},
                                    {"other", other.peer.worker_id},
                                    {"other_kv_compat_id", other.peer.kv_compat_id}});
  }
  if (peer.vocab_size < model_.tokenizer->vocab_size()) {
    log_warn("vocabularies_differ", {{"worker", peer.worker_id},
                                     {"worker_model", peer.model_name},
                                     {"worker_tokens", peer.vocab_size},
                                     {"tokenizer_tokens", model_.tokenizer->vocab_size()}});
  }
}

void Router::on_link_event(LinkEvent event) {
  if (auto* up = std::get_if<LinkUp>(&event)) {
    if (up->peer.role == Role::kRouter) {
      links_->close(up->link, "a router does not work for another router");
      return;
    }
    check_worker(up->peer);
    api_->on_worker(up->peer);
    dispatcher_->on_link_up(up->link, up->peer, up->address);
    log_worker("worker_up", up->link, "");
  } else if (auto* down = std::get_if<LinkDown>(&event)) {
    log_worker("worker_down", down->link, down->reason);
    dispatcher_->on_link_down(down->link, down->reason);
  } else if (auto* message = std::get_if<LinkMessage>(&event)) {
    dispatcher_->on_message(message->link, message->message);
  }
}

}  // namespace baton
