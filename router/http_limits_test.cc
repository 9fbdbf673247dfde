// Clients that are slow, odd or hostile, and what the server answers about itself: methods, ids,
// origins. Raw sockets on both sides.
#include <set>

#include "router/http_rules.h"
#include "router/test_cluster.h"

namespace baton {
namespace {

TEST_CASE("a header that drips in (slow loris) is cut off, however much of it has come") {
  LoneRouter server([](RouterConfig& config) { config.http.read_timeout_ms = 200; });
  SUBCASE("in the header") {
    TestClient client = server.client();
    client.send("GET /version HTTP/1.1\r\nHost: t\r\nX: ");
    CHECK(client.closed_by_server());
  }
  SUBCASE("in the body") {
    TestClient client = server.client();
    client.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\n{");
    CHECK(client.closed_by_server());
  }
  SUBCASE("in a second request") {
    TestClient client = server.client();
    CHECK(client.get("/version").status == 200);
    client.send("GET /version HT");
    CHECK(client.closed_by_server());
  }
}

TEST_CASE("an idle connection outlives the time for a request: keep-alive has its own") {
  CHECK(HttpConfig{}.keep_alive_ms >= 75'000);
  LoneRouter server([](RouterConfig& config) { config.http.read_timeout_ms = 50; });
  TestClient fresh = server.client(), used = server.client();
  CHECK(used.get("/version").status == 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // well beyond it
  CHECK(fresh.get("/version").status == 200);
  CHECK(used.get("/version").status == 200);
}

TEST_CASE("an idle connection is closed after keep_alive_ms") {
  LoneRouter server([](RouterConfig& config) { config.http.keep_alive_ms = 100; });
  TestClient fresh = server.client(), used = server.client();
  CHECK(used.get("/version").status == 200);
  CHECK(fresh.closed_by_server());
  CHECK(used.closed_by_server());
}

TEST_CASE("a reader that takes nothing for write_timeout_ms is cut off, below any buffer's limit") {
  Cluster cluster(200, [](RouterConfig& config) {
    config.http.write_buffer_bytes_max = 1 << 30;
    config.http.write_timeout_ms = 300;
  });
  TestClient client = cluster.client();
  send_long_stream(client);
  CHECK(cluster.decode1.wait_for_held(0));
  CHECK(cluster.decode2.wait_for_held(0));
}

TEST_CASE("a reader that is slow but reads gets everything, however long it takes") {
  LoneRouter server([](RouterConfig& config) {
    config.http.read_timeout_ms = 2000;
    config.http.write_timeout_ms = 30'000;
    config.http.body_bytes_max = 4'000'000;
  });
  TestClient client = server.client();
  send_for_large_answer(client);
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));  // longer than a request may take
  const TestResponse response = client.receive();
  CHECK(response.body.size() == std::stoul(response.headers.at("content-length")));
}

TEST_CASE("HTTP/1.1 without a Host, or with two, is refused; HTTP/1.0 needs none") {
  LoneRouter server;
  for (const char* head :
       {"GET /version HTTP/1.1\r\n\r\n", "GET /version HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"}) {
    TestClient client = server.client();
    client.send(head);
    const TestResponse response = client.receive();
    CHECK(response.status == 400);
    CHECK(json_of(response)["error"]["message"].get<std::string>().starts_with("host: got"));
  }
  TestClient old = server.client();
  old.send("GET /version HTTP/1.0\r\n\r\n");
  CHECK(old.receive().status == 200);
}

TEST_CASE("every path says which methods it takes") {
  LoneRouter server;
  TestClient client = server.client();
  const auto allow = [&](const std::string& method, const std::string& path) {
    client.send(method + " " + path + " HTTP/1.1\r\nHost: t\r\n\r\n");
    const TestResponse response = client.receive();
    INFO(method, " ", path);
    CHECK(response.status == 405);
    CHECK(json_of(response)["error"]["message"].is_string());
    return response.headers.at("allow");
  };
  CHECK(allow("GET", "/v1/chat/completions") == "POST, OPTIONS");
  CHECK(allow("DELETE", "/v1/models") == "GET, HEAD, OPTIONS");
  CHECK(allow("PUT", "/ping") == "GET, HEAD, POST, OPTIONS");
  CHECK(allow("PATCH", "/v1/models/fake") == "GET, HEAD, OPTIONS");
  CHECK(allow("FROB", "/version") == "GET, HEAD, OPTIONS");
  client.send("HEAD /v1/completions HTTP/1.1\r\nHost: t\r\n\r\n");
  CHECK(client.receive(true).status == 405);
}

TEST_CASE("what is not supported yet, and what does not exist, is told in OpenAI's shape") {
  LoneRouter server;
  for (const char* path : {"/v1/embeddings", "/v1/responses", "/v1/nothing", "/"}) {
    const TestResponse response = server.client().post(path, R"({"input":"a"})");
    CHECK(response.status == (path == std::string("/") ? 405 : 404));
    std::set<std::string> keys;
    const auto error = json_of(response)["error"];
    for (const auto& [key, value] : error.items()) keys.insert(key);
    CHECK(keys == std::set<std::string>{"message", "type", "param", "code"});
    CHECK(error["type"] == "invalid_request_error");
  }
  CHECK(server.client().post("/v1/embeddings", "{}").body.find("not supported yet") !=
        std::string::npos);
}

TEST_CASE("browsers of any origin may call: preflight, exposed headers, no key for OPTIONS") {
  LoneRouter server;
  TestClient client = server.client();
  client.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: http://ui\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  const TestResponse preflight = client.receive();
  CHECK(preflight.status == 204);
  CHECK(preflight.headers.at("access-control-allow-origin") == "*");
  CHECK(preflight.headers.at("access-control-allow-methods").find("POST") != std::string::npos);
  CHECK(preflight.headers.at("access-control-allow-headers").find("Authorization") !=
        std::string::npos);
  const TestResponse answer = client.get("/version");
  CHECK(answer.headers.at("access-control-expose-headers").find("X-Request-Id") !=
        std::string::npos);
}

TEST_CASE("every answer has an x-request-id: the client's if it is safe, else one of ours") {
  LoneRouter server;
  TestClient client = server.client();
  const auto id_for = [&](const std::string& header) {
    return get_with(client, "/version", header).headers.at("x-request-id");
  };
  CHECK(id_for("X-Request-Id: a-b_c.d:9\r\n") == "a-b_c.d:9");
  const std::string ours = id_for("");
  CHECK(ours.size() == 24);
  CHECK(ours != id_for(""));
  CHECK(id_for("X-Request-Id: a b<script>\r\n").size() == 24);
  CHECK(id_for("X-Request-Id: " + std::string(129, 'x') + "\r\n").size() == 24);
}

TEST_CASE("a traceparent is taken in its own shape only") {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  CHECK(safe_traceparent(good) == good);
  CHECK(safe_traceparent(good + "-more") == good);
  CHECK(safe_traceparent("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").empty());
  CHECK(safe_traceparent("00-1-2-01").empty());
  CHECK(safe_traceparent("").empty());
}

TEST_CASE("a model's name in a path may be escaped") {
  CHECK(percent_decoded("org%2Fname") == "org/name");
  CHECK(percent_decoded("100%") == "100%");
  CHECK(percent_decoded("%zz%4") == "%zz%4");
  LoneRouter server([](RouterConfig& config) { config.served_model_name = "org/name"; });
  TestClient client = server.client();
  CHECK(json_of(client.get("/v1/models/org%2Fname"))["id"] == "org/name");
  CHECK(json_of(client.get("/v1/models/org/name"))["id"] == "org/name");
  CHECK(client.get("/v1/models/").status == 404);
}

TEST_CASE("API keys are read again when their file changes; a file without any changes nothing") {
  const KeyFile keys("one\ntwo\r\n\n");
  LoneRouter server([&](RouterConfig& config) { config.http.api_keys_file = keys.path; });
  TestClient client = server.client();
  const auto status = [&](const std::string& key) {
    return get_with(client, "/v1/models", "Authorization: Bearer " + key + "\r\n").status;
  };
  const auto comes = [&](const std::string& key, int wanted) {
    for (int i = 0; i < 1000 && status(key) != wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return status(key) == wanted;
  };
  CHECK(status("one") == 200);
  CHECK(status("two") == 200);
  CHECK(status("three") == 401);
  CHECK(status("") == 401);
  keys.set("three\n");
  CHECK(comes("three", 200));
  CHECK(status("one") == 401);
  keys.set("\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // it has been looked at
  CHECK(status("three") == 200);
  keys.set("four\n");
  CHECK(comes("four", 200));
}

TEST_CASE("a queued request whose client goes away leaves the queue") {
  Cluster cluster;
  cluster.prefill.kill();
  cluster.decode1.kill();
  cluster.decode2.kill();
  TestClient client = cluster.client();
  client.send_post("/v1/completions", R"({"prompt":"abcdef","max_tokens":5})");
  REQUIRE(cluster.wait_for_metric("vllm:num_requests_waiting", 1));
  client.close();
  CHECK(cluster.wait_for_metric("vllm:num_requests_waiting", 0));
}

}  // namespace
}  // namespace baton
