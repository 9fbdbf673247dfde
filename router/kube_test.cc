#include <nlohmann/json.hpp>

#include "router/fake_kube.h"
#include "router/kube_http.h"
#include "router/kube_slices.h"
#include "router/kube_watch.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Names = std::vector<std::string>;

Json json(const std::string& text) {
  return Json::parse(text);
}

// Addresses of "svc" on port 7100: as they are, or with what is wrong with them.
Names shown(const KubeEndpoints& endpoints) {
  Names names;
  for (const auto& [address, hint] : endpoints)
    names.push_back(address + (hint.withheld.empty() ? "" : " " + hint.withheld));
  return names;
}

Names shown(const KubeSlices& slices) {
  return shown(slices.endpoints("svc", "7100"));
}

TEST_CASE("an answer is read whatever pieces it comes in") {
  const std::string text =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
      "5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n";
  for (const size_t step : {size_t{1}, size_t{3}, text.size()}) {
    HttpAnswer answer;
    std::string body;
    for (size_t at = 0; at < text.size(); at += step) {
      REQUIRE(answer.feed(text.substr(at, step)).ok());
      body += answer.take_body();
    }
    CHECK(answer.complete());
    CHECK(answer.status() == 200);
    CHECK(body == "hello world");
  }
}

TEST_CASE("a body ends by its length or by the stream's end, and a cut is told apart") {
  HttpAnswer sized;
  REQUIRE(sized.feed("HTTP/1.1 429 Slow\r\nContent-Length: 3\r\nRetry-After: 7\r\n\r\nab").ok());
  CHECK_FALSE(sized.complete());
  CHECK(sized.end().message() == "the answer was cut off");
  REQUIRE(sized.feed("c").ok());
  CHECK(sized.complete());
  CHECK(sized.retry_after_s() == 7);
  HttpAnswer open;
  REQUIRE(open.feed("HTTP/1.0 200 OK\r\n\r\nabc").ok());
  CHECK_FALSE(open.complete());
  CHECK(open.end().ok());
  CHECK(open.take_body() == "abc");
  CHECK(HttpAnswer().end().message() == "closed without an answer");
}

TEST_CASE("what is no HTTP is refused") {
  for (const char* text :
       {"SSH-2.0-OpenSSH\r\n", "HTTP/1.1 2x0 OK\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"}) {
    HttpAnswer answer;
    CHECK_MESSAGE(answer.feed(text).code() == Code::kInvalidArgument, text);
  }
  HttpAnswer answer;
  CHECK_FALSE(answer.feed(std::string(1 << 20, 'x')).ok());
}

TEST_CASE("slices of a Service are one, and those of another are not in it") {
  KubeSlices slices;
  REQUIRE(slices
              .replace(
                  json(FakeKube::list(5, {FakeKube::slice("a", "svc", 1, {"10.0.0.1", "!10.0.0.2"}),
                                          FakeKube::slice("b", "svc", 2, {"~10.0.0.3"}),
                                          FakeKube::slice("c", "other", 3, {"10.0.0.9"})})))
              .ok());
  CHECK(shown(slices) ==
        Names{"10.0.0.1:7100", "10.0.0.2:7100 not ready", "10.0.0.3:7100 terminating"});
  CHECK(slices.endpoints("svc", "7100").at("10.0.0.1:7100").zone == "z1");
  CHECK(shown(slices.endpoints("svc", "link")).front() == "10.0.0.1:7100");
  CHECK(slices.endpoints("svc", "no-such-port").empty());
  CHECK(slices.resource_version() == "5");
}

TEST_CASE("an address of a pod that goes and of one that comes is the new one's") {
  KubeSlices slices;
  const auto list = [](const std::string& first, const std::string& second) {
    return json(FakeKube::list(
        1, {FakeKube::slice("a", "svc", 1, {first}), FakeKube::slice("b", "svc", 1, {second})}));
  };
  REQUIRE(slices.replace(list("~10.0.0.1", "10.0.0.1")).ok());
  CHECK(shown(slices) == Names{"10.0.0.1:7100"});
  REQUIRE(slices.replace(list("10.0.0.1", "~10.0.0.1")).ok());
  CHECK(shown(slices) == Names{"10.0.0.1:7100"});
}

TEST_CASE("a pod of both families is taken once; conditions may be left out") {
  KubeSlices slices;
  const auto slice = [](const std::string& name, const std::string& family, const std::string& ip,
                        const std::string& uid) {
    return R"({"metadata":{"name":")" + name +
           R"(","labels":{"kubernetes.io/service-name":"svc"}},"addressType":")" + family +
           R"(","endpoints":[{"addresses":[")" + ip + R"("],"conditions":{},"targetRef":{"uid":")" +
           uid + R"("}}]})";
  };
  REQUIRE(slices
              .replace(json(FakeKube::list(
                  1, {slice("a", "IPv4", "10.0.0.1", "p1"), slice("b", "IPv6", "fd00::1", "p1"),
                      slice("c", "IPv6", "fd00::2", "p2"),
                      slice("d", "FQDN", "worker.example", "p3")})))
              .ok());
  CHECK(shown(slices) == Names{"10.0.0.1:7100", "[fd00::2]:7100"});
}

TEST_CASE("events change slices; bookmarks only the version; 410 asks for a list") {
  KubeSlices slices;
  REQUIRE(slices
              .replace(json(R"({"kind":"EndpointSliceList","metadata":{"resourceVersion":"1"},
                                  "items":null})"))
              .ok());
  const auto apply = [&](const std::string& type, const std::string& object) {
    return slices.apply(json(FakeKube::event(type, object)));
  };
  REQUIRE(apply("ADDED", FakeKube::slice("a", "svc", 2, {"10.0.0.1"})).ok());
  REQUIRE(apply("MODIFIED", FakeKube::slice("a", "svc", 3, {"10.0.0.2"})).ok());
  CHECK(shown(slices) == Names{"10.0.0.2:7100"});
  REQUIRE(apply("BOOKMARK", R"({"metadata":{"resourceVersion":"9"}})").ok());
  CHECK(slices.resource_version() == "9");
  REQUIRE(apply("DELETED", FakeKube::slice("a", "svc", 10, {"10.0.0.2"})).ok());
  CHECK(shown(slices).empty());
  CHECK(apply("ERROR", R"({"code":410,"message":"too old"})")->gone);
  CHECK(apply("ERROR", R"({"code":500,"message":"no"})")->error == "no");
  CHECK(slices.resource_version() == "10");
  CHECK_FALSE(apply("ADDED", R"({"metadata":{}})").ok());
  CHECK_FALSE(slices.apply(json(R"({"type":"ADDED"})")).ok());
}

TEST_CASE("what is no list of slices changes nothing") {
  KubeSlices slices;
  REQUIRE(
      slices.replace(json(FakeKube::list(1, {FakeKube::slice("a", "svc", 1, {"10.0.0.1"})}))).ok());
  for (const char* text :
       {"{}", R"({"kind":"Status","metadata":{"resourceVersion":"2"}})",
        R"({"kind":"EndpointSliceList","metadata":{}})",
        R"({"kind":"EndpointSliceList","metadata":{"resourceVersion":"2"},"items":{}})"}) {
    CHECK_MESSAGE(slices.replace(json(text)).code() == Code::kInvalidArgument, text);
  }
  CHECK(shown(slices) == Names{"10.0.0.1:7100"});
}

TEST_CASE("entries name a Service and its port, and a namespace or not") {
  const KubeService full = parse_kube_entry("kube:prod/decode:7100", "/nonexistent");
  CHECK(full.name_space == "prod");
  CHECK(full.service == "decode");
  CHECK(full.port == "7100");
  for (const char* bad : {"kube:", "kube:decode", "kube:prod/:1", "kube:Prod/decode:1",
                          "kube:a/b/c:1", "kube:a/b,c:1", "kube:decode:7100", "kube:a/b:"}) {
    CHECK_THROWS_AS_MESSAGE(parse_kube_entry(bad, "/nonexistent"), ConfigError, bad);
  }
}

}  // namespace
}  // namespace baton
