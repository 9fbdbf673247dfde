// Router, one prefill worker and two decode workers with real sockets in one process, for tests.
#pragma once

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "router/byte_tokenizer.h"
#include "router/fake_worker.h"
#include "router/router.h"
#include "router/test_client.h"

#include "tests/doctest.h"

namespace baton {

constexpr int64_t kStepUs = 500;

inline TextModel byte_model() {
  TextModel model;
  model.tokenizer = std::make_unique<ByteTokenizer>();
  model.chat_template =
      std::make_unique<ChatTemplate>("{% for m in messages %}{{ m.content }}{% endfor %}");
  model.eos_ids = {ByteTokenizer::kEos};
  return model;
}

inline RouterConfig router_config(const std::string& workers) {
  RouterConfig config;
  config.served_model_name = "fake";
  config.workers = workers;
  config.http.port = 0;
  config.http.body_bytes_max = 100'000;
  config.http.header_bytes_max = 4096;
  config.http.write_buffer_bytes_max = 200'000;
  config.route.local_prompt_tokens = 4;
  config.drain_timeout_ms = 60'000;
  return config;
}

// A server alone, without workers: most of HTTP needs none.
struct LoneRouter {
  explicit LoneRouter(std::function<void(RouterConfig&)> change = {}) {
    RouterConfig config = router_config("");
    if (change) change(config);
    router = std::make_unique<Router>(config, byte_model());
    loop = std::jthread([this] { router->run(); });
  }
  ~LoneRouter() {
    router->stop();
    loop.join();
  }
  TestClient client() const { return TestClient(router->port()); }

  std::unique_ptr<Router> router;
  std::jthread loop;
};

// Router, one prefill worker and two decode workers.
struct Cluster {
  explicit Cluster(int64_t step_us = kStepUs, std::function<void(RouterConfig&)> change = {})
      : step_us(step_us) {
    prefill.on_prefilled([this](const std::string& worker, const AttemptId& id) {
      (worker == "d1" ? decode1 : decode2).decode(id);
    });
    RouterConfig config =
        router_config(prefill.address() + "," + decode1.address() + "," + decode2.address());
    if (change) change(config);
    router = std::make_unique<Router>(config, byte_model());
    loop = std::jthread([this] { router->run(); });
    REQUIRE(wait_for_metric("baton_workers_decode", 2));
    REQUIRE(wait_for_metric("baton_workers_prefill", 1));
  }
  ~Cluster() {
    router->stop();
    loop.join();
  }
  TestClient client() const { return TestClient(router->port()); }
  // `label`, as in finished_reason="abort": besides those that every series has.
  double metric(const std::string& name, const std::string& label = "") const {
    std::set<std::string> labels = {R"(engine="0")", R"(model_name="fake")", R"(role="router")"};
    if (!label.empty()) labels.insert(label);
    std::string series = name;
    for (const std::string& one : labels) series += (series == name ? "{" : ",") + one;
    series += "} ";
    const std::string text = client().get("/metrics").body;
    const size_t at = text.find(series);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size()));
  }
  bool wait_for_metric(const std::string& name, double value) const {
    for (int i = 0; i < 1000; ++i) {
      if (metric(name) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  const int64_t step_us;
  FakeWorker prefill{Role::kPrefill, "p", step_us};
  FakeWorker decode1{Role::kDecode, "d1", step_us};
  FakeWorker decode2{Role::kDecode, "d2", step_us};
  std::unique_ptr<Router> router;
  std::jthread loop;
};

// Asks for a stream of more than any buffer takes.
inline void send_long_stream(TestClient& client) {
  std::string prompts = "[1,2,3,4,5,6]";
  for (int i = 0; i < 199; ++i) prompts += ",[1,2,3,4,5,6]";
  client.send_post("/v1/completions",
                   R"({"stream":true,"max_tokens":3000,"prompt":[)" + prompts + "]}");
}

// Asks for one answer of many megabytes; it begins to come.
inline void send_for_large_answer(TestClient& client) {
  client.send_post("/tokenize",
                   R"({"return_token_strs":true,"prompt":")" + std::string(2'000'000, 'a') + "\"}");
  client.receive_until("HTTP/1.1 200");
}

inline TestResponse get_with(TestClient& client, const std::string& path,
                             const std::string& header) {
  client.send("GET " + path + " HTTP/1.1\r\nHost: t\r\n" + header + "\r\n");
  return client.receive();
}

// A file of API keys, replaced at once as operators do.
struct KeyFile {
  explicit KeyFile(const std::string& keys) { set(keys); }
  ~KeyFile() { std::filesystem::remove(path); }
  void set(const std::string& keys) const {
    std::ofstream(path + ".new") << keys;
    std::filesystem::rename(path + ".new", path);
  }
  const std::string path = std::filesystem::temp_directory_path() /
                           ("baton_keys_" + std::to_string(::getpid()) + ".txt");
};

inline nlohmann::json json_of(const TestResponse& response) {
  return nlohmann::json::parse(response.body);
}

// The text of choice `index` out of a stream's events; checks the form of each.
inline std::string streamed_text(const std::vector<std::string>& events, int index = 0) {
  std::string text;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const auto chunk = nlohmann::json::parse(event);
    for (const auto& choice : chunk["choices"]) {
      if (choice["index"] != index) continue;
      if (choice.contains("text")) text += choice["text"];
      if (choice.contains("delta")) text += choice["delta"].value("content", "");
    }
  }
  return text;
}

}  // namespace baton
