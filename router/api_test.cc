// The API over real sockets, with fake workers behind the router.
#include <algorithm>
#include <set>

#include "router/static_files.h"
#include "router/test_cluster.h"

namespace baton {
namespace {

std::string embedded_file(const std::string& path) {
  const auto files = embedded_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const StaticFile& file) { return file.path == path; });
  return found == files.end() ? "" : std::string(found->bytes);
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
  CHECK_FALSE(body["choices"][0].contains("prompt_logprobs"));  // nobody asked for them
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

TEST_CASE("embedded files: whole, HEAD, and not again to whoever has them") {
  Cluster cluster;
  TestClient client = cluster.client();
  const auto whole = client.get("/openapi.json");
  CHECK(whole.status == 200);
  CHECK(whole.headers.at("content-type") == "application/json");
  CHECK(json_of(whole)["openapi"].get<std::string>().starts_with("3.1"));
  client.send("HEAD /openapi.json HTTP/1.1\r\nHost: t\r\n\r\n");
  CHECK(client.receive(true).headers.at("content-length") == std::to_string(whole.body.size()));
  const std::string etag = whole.headers.at("etag");
  client.send("GET /openapi.json HTTP/1.1\r\nHost: t\r\nIf-None-Match: \"x\", W/" + etag +
              "\r\n\r\n");
  const auto same = client.receive();
  CHECK(same.status == 304);
  CHECK(same.headers.at("etag") == etag);
  client.send("GET /openapi.json HTTP/1.1\r\nHost: t\r\nIf-None-Match: \"x\"\r\n\r\n");
  CHECK(client.receive().status == 200);
  CHECK(client.post("/openapi.json", "{}").status == 405);
}

TEST_CASE("openapi.json has every route, and no other") {
  std::set<std::pair<std::string, std::string>> described;
  const auto description = nlohmann::json::parse(embedded_file("/openapi.json"));
  for (const auto& [path, item] : description["paths"].items()) {
    for (const auto& [method, operation] : item.items()) {
      if (method == "get" || method == "post") {
        described.emplace(method == "get" ? "GET" : "POST", path);
      }
    }
  }
  std::set<std::pair<std::string, std::string>> routes{{"GET", "/openapi.json"}};
  for (const auto& route : Api::routes()) routes.insert(route);
  CHECK(described == routes);
}

TEST_CASE("tokeniser, prompt and template can be looked at without a token being made") {
  Cluster cluster;
  TestClient client = cluster.client();
  const auto info = json_of(client.get("/tokenizer_info"));
  CHECK(info["vocab_size"] == 258);
  CHECK(info["bos_token_id"] == 256);
  CHECK(info["eos_token_ids"] == nlohmann::json{257});
  CHECK(info["eos_token"].is_null());  // this tokeniser names none
  const std::string chat = R"({"messages":[{"role":"user","content":"ab"}]})";
  const auto rendered = json_of(client.post("/v1/chat/completions/render", chat));
  CHECK(rendered["prompt"] == "ab");
  CHECK(rendered["token_ids"] == nlohmann::json{97, 98});
  const auto prompts = json_of(client.post("/v1/completions/render", R"({"prompt":["a",[98]]})"));
  REQUIRE(prompts.size() == 2);
  CHECK(prompts[0]["token_ids"] == nlohmann::json{256, 97});
  CHECK(prompts[1]["prompt"] == "b");
  const auto bad = client.post("/v1/chat/completions/render", R"({"messages":[],"n":0})");
  CHECK(bad.status == 400);
  CHECK(client.post("/tokenize", "{}").status == 400);
}

TEST_CASE("the id of an answer: the header's, else the body's, else a random one") {
  Cluster cluster;
  TestClient client = cluster.client();
  const std::string body = R"({"prompt":"ab","max_tokens":1,"request_id":"of-the-body"})";
  CHECK(json_of(client.post("/v1/completions", body))["id"] == "cmpl-of-the-body");
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nX-Request-Id: of-the-header\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  CHECK(json_of(client.receive())["id"] == "cmpl-of-the-header");
  CHECK(client.post("/v1/completions", R"({"prompt":"a","request_id":"a b"})").status == 400);
  // Two that are alive at once under one id do not mix.
  TestClient one = cluster.client(), two = cluster.client();
  one.send_post("/v1/completions", R"({"prompt":"hello ","max_tokens":14,"request_id":"same"})");
  two.send_post("/v1/completions", R"({"prompt":"world ","max_tokens":14,"request_id":"same"})");
  CHECK(json_of(one.receive())["choices"][0]["text"] == "hello hello ");
  CHECK(json_of(two.receive())["choices"][0]["text"] == "world world ");
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
  CHECK(cluster.metric("baton_requests_replayed_total") == 1);
}

// What a client makes of a stream: per choice its text, logprobs' tokens and end; and the usage.
nlohmann::json seen_in(const TestResponse& response) {
  nlohmann::json seen = {{"usage", nullptr}};
  for (const std::string& event : events_of(response.body)) {
    if (event == "[DONE]") continue;
    const auto chunk = nlohmann::json::parse(event);
    if (chunk.contains("usage")) seen["usage"] = chunk["usage"];
    for (const auto& choice : chunk["choices"]) {
      auto& own = seen["choices"][choice["index"].dump()];
      if (own.is_null()) own = {{"text", ""}, {"tokens", nlohmann::json::array()}};
      own["text"] = own["text"].get<std::string>() + choice["text"].get<std::string>();
      for (const auto& token : choice["logprobs"]["tokens"]) own["tokens"].push_back(token);
      if (!choice["finish_reason"].is_null()) own["finish"] = choice["finish_reason"];
    }
  }
  return seen;
}

TEST_CASE("a lost decode worker with two choices, logprobs and a stop string half held back") {
  Cluster cluster(4000);
  const std::string body = R"({"prompt":"0123456789","max_tokens":60,"stream":true,"n":2,
      "logprobs":1,"stop":"789012","stream_options":{"include_usage":true}})";
  const auto undisturbed = seen_in(cluster.client().post("/v1/completions", body));
  CHECK(undisturbed["choices"]["1"]["text"] == "0123456");
  CHECK(undisturbed["choices"]["1"]["finish"] == "stop");

  TestClient client = cluster.client();
  client.send_post("/v1/completions", body);
  client.receive_until("\"text\":\"6\"");  // the next tokens may be the stop string's
  (cluster.decode1.held() == 1 ? cluster.decode1 : cluster.decode2).kill();
  CHECK(seen_in(client.receive()) == undisturbed);
  CHECK(cluster.metric("baton_requests_replayed_total") == 1);
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

TEST_CASE("more bodies than may wait for a text thread are answered 429") {
  Cluster cluster(kStepUs, [](RouterConfig& config) {
    config.text_threads = 1;
    config.text_queue_max = 1;
  });
  const std::string body = R"({"max_tokens":1,"prompt":")" + std::string(3000, 'a') + "\"}";
  int refused = 0;
  for (int round = 0; round < 100 && refused == 0; ++round) {
    std::vector<TestClient> clients;
    for (int i = 0; i < 8; ++i) clients.push_back(cluster.client());
    for (TestClient& client : clients) client.send_post("/v1/completions", body);
    for (TestClient& client : clients) {
      const TestResponse response = client.receive();
      if (response.status == 200) continue;
      CHECK(response.status == 429);
      CHECK(response.headers.contains("retry-after"));
      CHECK(response.body.find("text_queue_max") != std::string::npos);
      ++refused;
    }
  }
  CHECK(refused > 0);
  CHECK(cluster.metric("baton_requests_rejected_total", R"(reason="text_queue_full")") == refused);
}

}  // namespace
}  // namespace baton
