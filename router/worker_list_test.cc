#include "router/worker_list.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <optional>

#include "tests/doctest.h"

namespace baton {
namespace {

using Names = std::vector<std::string>;

// What the list has asked for, and a name service that says what the test wants.
struct Fixture {
  explicit Fixture(const RouterConfig& config)
      : list(config,
             {[this](const std::string& address) { connected.insert(address); },
              [this](const std::string& address) {
                connected.erase(address);
                released.push_back(address);
              }},
             [this](const std::string& name) -> Result<Names> {
               asked.push_back(name);
               if (!answer) return unavailable("the name service is away");
               return *answer;
             }) {}
  std::set<std::string> connected;
  Names released, asked;
  std::optional<Names> answer = Names{};
  WorkerList list;
};

RouterConfig with_workers(const std::string& workers, const std::string& file = "") {
  RouterConfig config;
  config.workers = workers;
  config.workers_file = file;
  return config;
}

struct File {
  File() {
    const int fd = ::mkstemp(path.data());
    REQUIRE(fd >= 0);
    ::close(fd);
  }
  ~File() { std::remove(path.c_str()); }
  void set(const std::string& text) const { std::ofstream(path) << text; }
  std::string path = "/tmp/baton_workers_XXXXXX";
};

TEST_CASE("addresses of a name come and go; static ones stay") {
  Fixture f(with_workers("a:1, dns:pool:7100"));
  f.answer = Names{"10.0.0.1:7100", "10.0.0.2:7100"};
  f.list.refresh();
  CHECK(f.asked == Names{"pool:7100"});
  CHECK(f.connected == std::set<std::string>{"a:1", "10.0.0.1:7100", "10.0.0.2:7100"});
  f.answer = Names{"10.0.0.2:7100", "10.0.0.3:7100"};
  f.list.refresh();
  CHECK(f.connected == std::set<std::string>{"a:1", "10.0.0.2:7100", "10.0.0.3:7100"});
  CHECK(f.released == Names{"10.0.0.1:7100"});
}

TEST_CASE("a name service that fails or says nothing takes no worker away") {
  Fixture f(with_workers("dns:pool:7100"));
  f.answer = Names{"10.0.0.1:7100"};
  f.list.refresh();
  f.answer = Names{};
  f.list.refresh();
  f.answer.reset();
  f.list.refresh();
  CHECK(f.connected == std::set<std::string>{"10.0.0.1:7100"});
  CHECK(f.released.empty());
}

TEST_CASE("two entries with one address dial it once, and release it with the last") {
  const File file;
  file.set("10.0.0.1:7100\n");
  Fixture f(with_workers("dns:pool:7100", file.path));
  f.answer = Names{"10.0.0.1:7100"};
  f.list.refresh();
  file.set("");
  f.list.refresh();
  CHECK(f.released.empty());
  f.answer = Names{"10.0.0.9:7100"};
  f.list.refresh();
  CHECK(f.released == Names{"10.0.0.1:7100"});
}

TEST_CASE("workers join and leave by the file; a broken file changes nothing") {
  const File file;
  file.set("# the pool\n\n  a:1 \r\nb:2\n");
  Fixture f(with_workers("", file.path));
  f.list.refresh();
  CHECK(f.connected == std::set<std::string>{"a:1", "b:2"});
  file.set("b:2\nc:3\n");
  f.list.refresh();
  CHECK(f.connected == std::set<std::string>{"b:2", "c:3"});
  file.set("b:2\nnonsense\n");
  f.list.refresh();
  CHECK(f.connected == std::set<std::string>{"b:2", "c:3"});
  std::remove(file.path.c_str());
  f.list.refresh();
  CHECK(f.connected == std::set<std::string>{"b:2", "c:3"});
  CHECK(f.released == Names{"a:1"});
}

TEST_CASE("entries that make no sense are a start-up error") {
  CHECK_THROWS_AS(Fixture(with_workers("nonsense")), ConfigError);
  CHECK_THROWS_AS(Fixture(with_workers("dns:pool")), ConfigError);
  CHECK_THROWS_AS(Fixture(with_workers("", "/nonexistent/workers")), ConfigError);
}

TEST_CASE("the list looks by itself, and ends while it waits") {
  RouterConfig config = with_workers("a:1");
  config.route.discovery_interval_ms = 3'600'000;
  std::promise<std::string> connected;
  WorkerList list(config, {[&](const std::string& address) { connected.set_value(address); },
                           [](const std::string&) {}});
  list.start();
  CHECK(connected.get_future().get() == "a:1");
}

TEST_CASE("the system's answer is numeric addresses with the port") {
  const auto found = WorkerList::resolve_by_system("localhost:7100");
  REQUIRE(found.ok());
  for (const std::string& address : *found)
    CHECK((address == "127.0.0.1:7100" || address == "[::1]:7100"));
}

}  // namespace
}  // namespace baton
