#include "router/kube_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "router/fake_kube.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Names = std::vector<std::string>;
constexpr auto kPatience = std::chrono::seconds(60);

// A watch of the Service "svc" and what has come of it.
struct Watch {
  explicit Watch(const KubeConfig& config)
      : watch(config, "ns", {"svc", "svc2"}, [this] {
          std::lock_guard lock(mutex);
          troubles.push_back(watch.trouble());
          changed.notify_all();
        }) {
    watch.start();
  }
  Names addresses() const {
    Names names;
    for (const auto& [address, hint] : watch.endpoints("svc", "7100")) names.push_back(address);
    return names;
  }
  bool sees(const Names& wanted) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return addresses() == wanted; });
  }
  bool is_well() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return watch.trouble().empty(); });
  }
  // Now or before.
  bool has_said(const std::string& words) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] {
      return std::any_of(troubles.begin(), troubles.end(), [&](const std::string& trouble) {
        return trouble.find(words) != std::string::npos;
      });
    });
  }
  std::mutex mutex;
  std::condition_variable changed;
  Names troubles;
  KubeWatch watch;  // last: it calls the above
};

FakeKube::Step list_of(int version, const Names& addresses) {
  return {{FakeKube::answer(
      200, FakeKube::list(version, {FakeKube::slice("a", "svc", version, addresses)}))}};
}

std::string change(int version, const Names& addresses) {
  return FakeKube::chunk(
      FakeKube::event("MODIFIED", FakeKube::slice("a", "svc", version, addresses)));
}

TEST_CASE("a list, then what changes") {
  FakeKube kube;
  kube.then(list_of(7, {"10.0.0.1"}));
  kube.then({{FakeKube::watch_head(), change(8, {"10.0.0.1", "10.0.0.2"})}, /*hold=*/true});
  Watch watch(kube.config());
  CHECK(watch.sees({"10.0.0.1:7100", "10.0.0.2:7100"}));
  CHECK(watch.is_well());
  const std::string list = kube.request(0).target;
  CHECK(list ==
        "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?labelSelector="
        "kubernetes.io%2Fservice-name%20in%20%28svc%2Csvc2%29");
  const std::string follow = kube.request(1).target;
  CHECK(follow.starts_with(list + "&watch=1&allowWatchBookmarks=true&resourceVersion=7&"));
}

TEST_CASE("a watch cut off in mid-chunk goes on from the last version it saw") {
  FakeKube kube;
  kube.then(list_of(7, {"10.0.0.1"}));
  kube.then({{FakeKube::watch_head(), change(8, {"10.0.0.2"}), "ff\r\n{\"type\":\"MODI"}});
  kube.then({{FakeKube::watch_head(), change(9, {"10.0.0.3"})}, /*hold=*/true});
  Watch watch(kube.config());
  CHECK(watch.sees({"10.0.0.3:7100"}));
  CHECK(kube.request(2).target.find("resourceVersion=8&") != std::string::npos);
  CHECK(watch.is_well());
}

TEST_CASE("a version that is too old needs a new list, by event or by status") {
  FakeKube kube;
  const std::string gone = R"({"kind":"Status","code":410,"message":"too old"})";
  kube.then(list_of(1, {"10.0.0.1"}));
  kube.then({{FakeKube::watch_head(), FakeKube::chunk(FakeKube::event("ERROR", gone))}});
  kube.then(list_of(50, {"10.0.0.2"}));
  kube.then({{FakeKube::answer(410, gone)}});
  kube.then(list_of(90, {"10.0.0.3"}));
  Watch watch(kube.config());
  CHECK(watch.sees({"10.0.0.3:7100"}));
  CHECK(kube.request(2).target.find("watch=1") == std::string::npos);
  CHECK(kube.request(5).target.find("resourceVersion=90&") != std::string::npos);
}

TEST_CASE("an API server that fails takes no worker away") {
  FakeKube kube;
  kube.then(list_of(7, {"10.0.0.1"}));
  for (int i = 0; i < 3; ++i) kube.then({{FakeKube::answer(503, "overloaded")}});
  kube.then({});  // closes at once
  kube.then({{"this is no HTTP\r\n"}});
  kube.then({{FakeKube::watch_head(), FakeKube::chunk("no JSON")}});
  kube.then({{FakeKube::answer(200, "{}")}});  // no list
  Watch watch(kube.config());
  CHECK(watch.has_said("status 503: overloaded"));
  CHECK(watch.has_said("got no EndpointSliceList"));
  CHECK(watch.addresses() == Names{"10.0.0.1:7100"});
}

TEST_CASE("the token is read for each request") {
  char path[] = "/tmp/baton_token_XXXXXX";
  const int fd = ::mkstemp(path);
  REQUIRE(fd >= 0);
  ::close(fd);
  const auto write = [&](const char* token) { std::ofstream(path) << token << "\n"; };
  write("old");
  FakeKube kube;
  KubeConfig config = kube.config();
  config.token_file = path;
  for (int i = 0; i < 1000; ++i) kube.then({{FakeKube::answer(401, "Unauthorized")}});
  Watch watch(config);
  CHECK(kube.request(0).authorization == "Bearer old");
  CHECK(watch.has_said("status 401"));
  write("new");
  size_t n = 1;
  while (kube.request(n).authorization == "Bearer old") ++n;
  CHECK(kube.request(n).authorization == "Bearer new");
  std::remove(path);
}

TEST_CASE("a watch that has gone silent is opened anew") {
  FakeKube kube;
  KubeConfig config = kube.config();
  config.idle_timeout_ms = 100;
  kube.then(list_of(7, {"10.0.0.1"}));
  kube.then({{FakeKube::watch_head()}, /*hold=*/true});
  kube.then({{FakeKube::watch_head(), change(8, {"10.0.0.2"})}, /*hold=*/true});
  Watch watch(config);
  CHECK(watch.sees({"10.0.0.2:7100"}));
  CHECK(kube.request(2).target.find("resourceVersion=7&") != std::string::npos);
}

TEST_CASE("an answer that does not come is given up") {
  FakeKube kube;
  KubeConfig config = kube.config();
  config.request_timeout_ms = 100;
  kube.then({{"HTTP/1.1 200 OK\r\n"}, /*hold=*/true});
  kube.then(list_of(7, {"10.0.0.1"}));
  Watch watch(config);
  CHECK(watch.sees({"10.0.0.1:7100"}));
}

TEST_CASE("a token goes to nobody in plain text, and only https is taken") {
  KubeConfig config;
  config.token_file.clear();
  config.api_server = "ftp://127.0.0.1:1";
  CHECK_THROWS_AS(KubeApi{config}, ConfigError);
  config.api_server = "https://127.0.0.1";
  CHECK_THROWS_AS(KubeApi{config}, ConfigError);
  config.api_server = "http://192.0.2.1:80";
  const auto answer = KubeApi(config).get("/", 1000, [](std::string_view) { return true; });
  CHECK(answer.status().message().find("beyond loopback") != std::string::npos);
}

}  // namespace
}  // namespace baton
