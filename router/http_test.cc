// HTTP itself: connections, limits, clients that come and go. Raw sockets on both sides.
#include "router/test_cluster.h"

namespace baton {
namespace {

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
  REQUIRE(cluster.wait_for_metric("vllm:num_requests_running", 1));
  client.close();
  CHECK(cluster.decode1.wait_for_held(0));
  CHECK(cluster.decode2.wait_for_held(0));
  CHECK(cluster.wait_for_metric("vllm:num_requests_running", 0));
  CHECK(cluster.metric("vllm:request_success_total", R"(finished_reason="abort")") == 1);
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

TEST_CASE("a client that stops sending while a large answer goes out gets all of it") {
  Cluster cluster(kStepUs, [](RouterConfig& config) { config.http.body_bytes_max = 4'000'000; });
  TestClient client = cluster.client();
  send_for_large_answer(client);
  client.shut_sending();
  const auto response = client.receive();
  CHECK(response.status == 200);
  CHECK(response.body.size() == std::stoul(response.headers.at("content-length")));
}

TEST_CASE("a reader that stops is cut off") {
  Cluster cluster(200);
  TestClient client = cluster.client();
  send_long_stream(client);
  CHECK(cluster.decode1.wait_for_held(0));
  CHECK(cluster.decode2.wait_for_held(0));
}

TEST_CASE("API keys guard the model, not the probes") {
  const KeyFile keys("secret\n");
  Cluster cluster(kStepUs, [&](RouterConfig& config) { config.http.api_keys_file = keys.path; });
  TestClient client = cluster.client();
  const auto refused = client.get("/v1/models");
  CHECK(refused.status == 401);
  CHECK(refused.headers.at("www-authenticate") == "Bearer");
  CHECK(client.get("/health").status == 200);
  CHECK(get_with(client, "/v1/models", "Authorization: bearer secret\r\n").status == 200);
  CHECK(get_with(client, "/v1/models", "X-Api-Key: secret\r\n").status == 200);
  TestClient stranger = cluster.client();  // is told before it has sent its body
  stranger.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 90000\r\n\r\n");
  CHECK(stranger.receive().status == 401);
  CHECK(stranger.closed_by_server());
  CHECK(get_with(client, "/v1/models", "Authorization: Bearer secrex\r\n").status == 401);
}

TEST_CASE("draining finishes what runs and refuses what is new") {
  Cluster cluster(2000);
  TestClient idle = cluster.client(), busy = cluster.client();
  CHECK(idle.get("/health").status == 200);
  busy.send_post("/v1/completions", R"({"prompt":"abcdef","max_tokens":200,"stream":true})");
  busy.receive_until("data: ");
  cluster.router->drain();
  CHECK(idle.closed_by_server());
  // Who comes now is told so, and is not left with a refused connection.
  CHECK(cluster.client().get("/readyz").status == 503);
  CHECK(cluster.client().get("/livez").status == 200);
  TestClient late = cluster.client();
  const TestResponse refused = late.post("/v1/completions", R"({"prompt":"abcdef"})");
  CHECK(refused.status == 503);
  CHECK(refused.headers.contains("retry-after"));
  CHECK(late.closed_by_server());
  const TestClient silent = cluster.client();  // holds nobody up
  CHECK(events_of(busy.receive().body).back() == "[DONE]");
  cluster.loop.join();
  cluster.loop = std::jthread([] {});
}

}  // namespace
}  // namespace baton
