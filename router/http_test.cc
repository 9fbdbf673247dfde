// The router with real sockets on both sides: raw HTTP clients and fake workers.
#include <nlohmann/json.hpp>
#include <thread>

#include "router/byte_tokenizer.h"
#include "router/fake_worker.h"
#include "router/router.h"
#include "router/test_client.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int64_t kStepUs = 500;

TextModel byte_model() {
  TextModel model;
  model.tokenizer = std::make_unique<ByteTokenizer>();
  model.chat_template =
      std::make_unique<ChatTemplate>("{% for m in messages %}{{ m.content }}{% endfor %}");
  model.eos_ids = {ByteTokenizer::kEos};
  return model;
}

RouterConfig router_config(const std::string& workers) {
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
    REQUIRE(wait_for_metric("baton_workers_decode{engine=\"0\",model_name=\"fake\"}", 2));
    REQUIRE(wait_for_metric("baton_workers_prefill{engine=\"0\",model_name=\"fake\"}", 1));
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

nlohmann::json json_of(const TestResponse& response) {
  return nlohmann::json::parse(response.body);
}

// The text of choice `index` out of a stream's events; checks the form of each.
std::string streamed_text(const std::vector<std::string>& events, int index = 0) {
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

TEST_CASE("a completion, whole and streamed") {
  Cluster cluster;
  TestClient client = cluster.client();
  const auto whole = client.post("/v1/completions", R"({"prompt":"hello ","max_tokens":14})");
  REQUIRE(whole.status == 200);
  const auto body = json_of(whole);
  CHECK(body["object"] == "text_completion");
  CHECK(body["choices"][0]["text"] == "hello hello ");
  CHECK(body["choices"][0]["finish_reason"] == "length");
  CHECK(body["usage"]["prompt_tokens"] == 7);
  CHECK(body["usage"]["completion_tokens"] == 14);
  CHECK(body["usage"]["prompt_tokens_details"]["cached_tokens"] == 3);

  const auto streamed =
      client.post("/v1/completions", R"({"prompt":"hello ","max_tokens":14,"stream":true})");
  CHECK(streamed.headers.at("content-type") == "text/event-stream; charset=utf-8");
  const auto events = events_of(streamed.body);
  CHECK(events.back() == "[DONE]");
  CHECK(streamed_text(events) == "hello hello ");
  CHECK(streamed.body.find("usage") == std::string::npos);
}

TEST_CASE("a chat stream: the role first, one finish, the usage last") {
  Cluster cluster;
  const auto response = cluster.client().post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"caf\u00e9 "}],"max_tokens":12,"stream":true,
          "stream_options":{"include_usage":true},"n":2})");
  REQUIRE(response.status == 200);
  const auto events = events_of(response.body);
  REQUIRE(events.size() > 6);
  std::map<int, int> roles, finishes;
  std::string id;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const auto event = nlohmann::json::parse(events[i]);
    CHECK(event["object"] == "chat.completion.chunk");
    if (id.empty()) id = event["id"];
    CHECK(event["id"] == id);
    CHECK(event.contains("usage") == (i + 2 == events.size()));
    for (const auto& choice : event["choices"]) {
      if (choice["delta"].contains("role")) ++roles[choice["index"]];
      if (!choice["finish_reason"].is_null()) ++finishes[choice["index"]];
    }
  }
  CHECK(events.back() == "[DONE]");
  CHECK(roles == std::map<int, int>{{0, 1}, {1, 1}});
  CHECK(finishes == std::map<int, int>{{0, 1}, {1, 1}});
  CHECK(streamed_text(events, 0) == "café café ");
  CHECK(streamed_text(events, 1) == "café café ");
  const auto usage = nlohmann::json::parse(events[events.size() - 2]);
  CHECK(usage["choices"].empty());
  CHECK(usage["usage"]["completion_tokens"] == 24);
}

TEST_CASE("batches, token ids, stop strings, logprobs and scoring") {
  Cluster cluster;
  TestClient client = cluster.client();
  auto body = json_of(client.post(
      "/v1/completions", R"({"prompt":[[97,98,99,100,101],[120,121]],"n":2,"max_tokens":4})"));
  REQUIRE(body["choices"].size() == 4);
  CHECK(body["choices"][1]["text"] == "abcd");
  CHECK(body["choices"][2]["text"] == "xyxy");
  CHECK(body["choices"][3]["index"] == 3);
  CHECK(body["usage"]["prompt_tokens"] == 7);

  body = json_of(client.post(
      "/v1/completions", R"({"prompt":"one two three ","max_tokens":100,"stop":["thr","zz"]})"));
  CHECK(body["choices"][0]["text"] == "one two ");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["choices"][0]["stop_reason"] == "thr");
  CHECK(body["usage"]["completion_tokens"] == 12);  // <bos> and 11 letters

  body = json_of(client.post("/v1/completions",
                             R"({"prompt":[[97,98,99]],"max_tokens":1,"logprobs":1,"echo":true})"));
  const auto logprobs = body["choices"][0]["logprobs"];
  CHECK(body["choices"][0]["text"] == "abca");
  CHECK(logprobs["tokens"] == nlohmann::json{"a", "b", "c", "a"});
  CHECK(logprobs["token_logprobs"] == nlohmann::json{nullptr, -0.5, -0.5, -0.25});
  CHECK(logprobs["text_offset"] == nlohmann::json{0, 1, 2, 3});
  body = json_of(client.post("/v1/completions",
                             R"({"prompt":[[97,98,99]],"max_tokens":0,"logprobs":1,"echo":true})"));
  CHECK(body["choices"][0]["text"] == "abc");
  CHECK(body["choices"][0]["logprobs"]["tokens"].size() == 3);
  CHECK(body["usage"]["completion_tokens"] == 0);

  body = json_of(client.post("/v1/chat/completions",
                             R"({"messages":[{"role":"user","content":"abcdef"}],"max_tokens":2,
                                 "logprobs":true,"top_logprobs":1})"));
  CHECK(body["choices"][0]["logprobs"]["content"][1]["token"] == "b");
  CHECK(body["choices"][0]["logprobs"]["content"][1]["top_logprobs"][0]["logprob"] == -0.25);
}

TEST_CASE("the small routes") {
  Cluster cluster;
  TestClient client = cluster.client();
  CHECK(client.get("/health").status == 200);
  CHECK(client.get("/livez").status == 200);
  CHECK(client.get("/readyz").status == 200);
  CHECK(client.get("/ping").status == 200);
  CHECK(json_of(client.get("/version")).contains("version"));
  CHECK(json_of(client.get("/v1/models"))["data"][0]["max_model_len"] == 4096);
  CHECK(json_of(client.get("/v1/models/fake"))["id"] == "fake");
  CHECK(client.get("/v1/models/other").status == 404);
  CHECK(json_of(client.post("/tokenize", R"({"prompt":"ab"})"))["tokens"] ==
        nlohmann::json{256, 97, 98});
  CHECK(json_of(client.post("/tokenize",
                            R"({"messages":[{"role":"user","content":"ab"}]})"))["count"] == 2);
  CHECK(json_of(client.post("/detokenize", R"({"tokens":[97,98]})"))["prompt"] == "ab");
  const auto missing = client.get("/nothing");
  CHECK(missing.status == 404);
  CHECK(json_of(missing)["error"].contains("message"));
  CHECK(client.get("/v1/completions").status == 405);
  CHECK(client.post("/v1/completions", "{").status == 400);
  CHECK(client.post("/v1/completions", R"({"prompt":"a","model":"x"})").status == 404);
  client.send("HEAD /health HTTP/1.1\r\nHost: t\r\n\r\n");
  CHECK(client.receive(true).status == 200);
  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto options = client.receive();
  CHECK(options.status == 204);
  CHECK(options.headers.at("access-control-allow-origin") == "*");
}

TEST_CASE("what HTTP asks of a server") {
  Cluster cluster;
  const std::string body = R"({"prompt":"abcdef","max_tokens":2})";
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: t\r\n";
  TestClient client = cluster.client();

  SUBCASE("pipelined requests are answered in order") {
    client.send(post + length + "X-Request-Id: one\r\n\r\n" + body + post + length +
                "X-Request-Id: two\r\n\r\n" + body + "GET /version HTTP/1.1\r\nHost: t\r\n\r\n");
    const auto one = client.receive(), two = client.receive(), three = client.receive();
    CHECK(one.headers.at("x-request-id") == "one");
    CHECK(json_of(one)["id"] == "cmpl-one");
    CHECK(two.headers.at("x-request-id") == "two");
    CHECK(json_of(three).contains("version"));
  }
  SUBCASE("chunked bodies and 100-continue") {
    client.send(post + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    CHECK(client.receive().status == 100);
    client.send("5\r\n" + body.substr(0, 5) + "\r\n");
    char size[16];
    std::snprintf(size, sizeof(size), "%zx\r\n", body.size() - 5);
    client.send(size + body.substr(5) + "\r\n0\r\n\r\n");
    CHECK(client.receive().status == 200);
    CHECK(client.get("/version").status == 200);
  }
  SUBCASE("HTTP/1.0 streams end with the connection") {
    const std::string streaming = R"({"prompt":"abcdef","max_tokens":3,"stream":true})";
    client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " +
                std::to_string(streaming.size()) + "\r\n\r\n" + streaming);
    const std::string all = client.receive_until("[DONE]\n\n");
    CHECK(all.find("chunked") == std::string::npos);
    CHECK(all.find("[DONE]\n\n") != std::string::npos);
  }
  SUBCASE("smuggling and nonsense") {
    for (const std::string& head :
         {post + length + "Transfer-Encoding: chunked\r\n\r\n" + body,
          post + "Transfer-Encoding: xchunked\r\n\r\n" + body,
          post + "Transfer-Encoding: chunked, identity\r\n\r\n" + body,
          post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body,
          post + "Content-Length: -1\r\n\r\n" + body, std::string("hello\r\n\r\n")}) {
      INFO(head);
      TestClient other = cluster.client();
      other.send(head);
      CHECK(other.receive().status == 400);
      CHECK(other.closed_by_server());
    }
  }
  SUBCASE("limits") {
    client.send(post + "Content-Length: 200000\r\n\r\n");
    CHECK(client.receive().status == 413);
    TestClient chunked = cluster.client();
    chunked.send(post + "Transfer-Encoding: chunked\r\n\r\n30d40\r\n" + std::string(200000, 'x'));
    CHECK(chunked.receive().status == 413);
    TestClient header = cluster.client();
    header.send("GET / HTTP/1.1\r\nX: " + std::string(10000, 'x') + "\r\n\r\n");
    CHECK(header.receive().status == 431);
    TestClient deep = cluster.client();
    CHECK(deep.post("/v1/completions", "{\"a\":" + std::string(5000, '[')).status == 400);
  }
}

TEST_CASE("a client that goes away is cancelled everywhere") {
  Cluster cluster(20'000);
  TestClient client = cluster.client();
  const std::string tail = R"("prompt":"hello there ","max_tokens":2000})";
  SUBCASE("in a stream") {
    client.send_post("/v1/completions", R"({"stream":true,)" + tail);
    client.receive_until("data: ");
  }
  SUBCASE("while it waits for a whole answer") {
    client.send_post("/v1/completions", "{" + tail);
  }
  // Exactly one of the two decode workers keeps it.
  REQUIRE(
      cluster.wait_for_metric("vllm:num_requests_running{engine=\"0\",model_name=\"fake\"}", 1));
  client.close();
  CHECK(cluster.decode1.wait_for_held(0));
  CHECK(cluster.decode2.wait_for_held(0));
  CHECK(cluster.wait_for_metric("vllm:num_requests_running{engine=\"0\",model_name=\"fake\"}", 0));
  CHECK(cluster.metric("vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_"
                       "name=\"fake\"}") == 1);
}

TEST_CASE("a client that only stops sending gets its answer") {
  Cluster cluster;
  TestClient client = cluster.client();
  client.send_post("/v1/completions", R"({"prompt":"hello ","max_tokens":40})");
  client.shut_sending();
  auto response = client.receive();
  while (response.status == 102) response = client.receive();
  CHECK(response.status == 200);
  CHECK(response.body.find("hello hello") != std::string::npos);
}

TEST_CASE("the death of a decode worker in mid-stream is not seen by the client") {
  Cluster cluster(2000);
  TestClient client = cluster.client();
  client.send_post("/v1/completions", R"({"prompt":"0123456789","max_tokens":60,"stream":true})");
  client.receive_until("\"text\":\"3\"");
  (cluster.decode1.held() == 1 ? cluster.decode1 : cluster.decode2).kill();
  const auto response = client.receive();
  CHECK(events_of(response.body).back() == "[DONE]");
  std::string expected;
  for (int i = 0; i < 60; ++i)
    expected += i % 11 == 0 ? "" : std::string(1, "0123456789"[i % 11 - 1]);
  CHECK(streamed_text(events_of(response.body)) == expected);
  CHECK(cluster.metric("baton_requests_replayed_total{engine=\"0\",model_name=\"fake\"}") == 1);
}

TEST_CASE("with every worker gone a client gets one clear error, also in mid-stream") {
  Cluster cluster(20'000, [](RouterConfig& config) { config.route.queue_wait_ms = 200; });
  TestClient streaming = cluster.client(), waiting = cluster.client();
  streaming.send_post("/v1/completions", R"({"prompt":"abcdef","max_tokens":500,"stream":true})");
  streaming.receive_until("data: ");
  cluster.prefill.kill();
  cluster.decode1.kill();
  cluster.decode2.kill();
  const auto events = events_of(streaming.receive().body);
  REQUIRE(events.size() >= 3);
  CHECK(events.back() == "[DONE]");
  const auto error = nlohmann::json::parse(events[events.size() - 2])["error"];
  CHECK(error["type"] == "unavailable_error");
  CHECK(error["message"].get<std::string>().find("no worker") != std::string::npos);

  CHECK(waiting.get("/health").status == 503);
  const auto refused =
      waiting.post("/v1/completions", R"({"prompt":"abcdef","max_tokens":5,"stream":true})");
  CHECK(refused.status == 503);
  CHECK(refused.headers.contains("retry-after"));
  CHECK(json_of(refused).contains("error"));
}

TEST_CASE("more requests than the queue holds are answered 429") {
  Cluster cluster(20'000, [](RouterConfig& config) { config.route.queue_max = 2; });
  const auto refused =
      cluster.client().post("/v1/completions", R"({"prompt":["a","b","c"],"max_tokens":5})");
  CHECK(refused.status == 429);
  CHECK(refused.headers.contains("retry-after"));
  CHECK(json_of(refused)["error"]["type"] == "rate_limit_error");
  CHECK(cluster.client().post("/v1/completions", R"({"prompt":["a","b"],"max_tokens":5})").status ==
        200);
}

TEST_CASE("a reader that stops is cut off") {
  Cluster cluster(200);
  TestClient client = cluster.client();
  std::string prompts = "[1,2,3,4,5,6]";
  for (int i = 0; i < 199; ++i) prompts += ",[1,2,3,4,5,6]";
  client.send_post("/v1/completions",
                   "{\"stream\":true,\"max_tokens\":3000,\"prompt\":[" + prompts + "]}");
  CHECK(cluster.decode1.wait_for_held(0));
  CHECK(cluster.decode2.wait_for_held(0));
}

TEST_CASE("API keys guard the model, not the probes") {
  const std::string file = "router_test_keys.txt";
  FILE* out = std::fopen(file.c_str(), "w");
  std::fputs("secret\n", out);
  std::fclose(out);
  Cluster cluster(kStepUs, [&](RouterConfig& config) { config.http.api_keys_file = file; });
  std::remove(file.c_str());
  TestClient client = cluster.client();
  const auto refused = client.get("/v1/models");
  CHECK(refused.status == 401);
  CHECK(refused.headers.at("www-authenticate") == "Bearer");
  CHECK(client.get("/health").status == 200);
  client.send("GET /v1/models HTTP/1.1\r\nHost: t\r\nAuthorization: bearer secret\r\n\r\n");
  CHECK(client.receive().status == 200);
  client.send("GET /v1/models HTTP/1.1\r\nHost: t\r\nX-Api-Key: secret\r\n\r\n");
  CHECK(client.receive().status == 200);
  client.send("GET /v1/models HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer secrex\r\n\r\n");
  CHECK(client.receive().status == 401);
}

TEST_CASE("draining finishes what runs and refuses what is new") {
  Cluster cluster(2000);
  TestClient idle = cluster.client(), busy = cluster.client();
  CHECK(idle.get("/health").status == 200);
  busy.send_post("/v1/completions", R"({"prompt":"abcdef","max_tokens":40,"stream":true})");
  busy.receive_until("data: ");
  cluster.router->drain();
  CHECK(idle.closed_by_server());
  CHECK(events_of(busy.receive().body).back() == "[DONE]");
  cluster.loop.join();
  cluster.loop = std::jthread([] {});
}

}  // namespace
}  // namespace baton
