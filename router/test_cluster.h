// Router, one prefill worker and two decode workers with real sockets in one process, for tests.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
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
    REQUIRE(wait_for_metric(
        "baton_workers_decode{engine=\"0\",model_name=\"fake\",role=\"router\"}", 2));
    REQUIRE(wait_for_metric(
        "baton_workers_prefill{engine=\"0\",model_name=\"fake\",role=\"router\"}", 1));
  }
  ~Cluster() {
    router->stop();
    loop.join();
  }
  TestClient client() const { return TestClient(router->port()); }
  double metric(const std::string& series) const {
    const std::string text = client().get("/metrics").body;
    const size_t at = text.find(series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 1));
  }
  bool wait_for_metric(const std::string& series, double value) const {
    for (int i = 0; i < 1000; ++i) {
      if (metric(series) == value) return true;
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
