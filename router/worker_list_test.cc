#include "router/worker_list.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>

#include "router/fake_kube.h"

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
              },
              [](const std::string&, const AddressHint&) {}},
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

TEST_CASE("a source that cannot be asked counts as stale until it answers, or is listed no more") {
  const File file;
  file.set("dns:other:7100\n");
  Fixture f(with_workers("a:1, dns:pool:7100", file.path));
  f.answer = Names{"10.0.0.1:7100"};
  f.list.refresh();
  CHECK(f.list.stale_sources() == 0);
  f.answer.reset();
  f.list.refresh();
  CHECK(f.list.stale_sources() == 2);
  file.set("nonsense\n");  // what it listed before counts
  f.list.refresh();
  CHECK(f.list.stale_sources() == 3);
  file.set("b:1\n");
  f.list.refresh();
  CHECK(f.list.stale_sources() == 1);
  f.answer = Names{"10.0.0.2:7100"};
  f.list.refresh();
  CHECK(f.list.stale_sources() == 0);
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

// What a list on its own thread has asked for.
struct Told {
  WorkerList::Links links() {
    const auto noted = [this](auto change) {
      {
        std::lock_guard lock(mutex);
        change();
      }
      changed.notify_all();
    };
    return {[this, noted](const std::string& a) { noted([&] { dialled.insert(a); }); },
            [this, noted](const std::string& a) { noted([&] { dialled.erase(a); }); },
            [this, noted](const std::string& a, const AddressHint& hint) {
              noted([&] { withheld[a] = hint.withheld; });
            }};
  }
  bool comes_to(const std::set<std::string>& addresses, const std::string& address = "",
                const std::string& reason = "") {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60),
                            [&] { return dialled == addresses && withheld[address] == reason; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::string> dialled;
  std::map<std::string, std::string> withheld;
};

TEST_CASE("endpoints of a Service are dialled while they are ready, and withheld when they go") {
  FakeKube kube;
  RouterConfig config = with_workers("b:1, kube:ns/svc:7100");
  config.kube = kube.config();
  config.kube.idle_timeout_ms = 100;  // the next watch takes the next step of the script
  const auto slice = [](const Names& endpoints) {
    return FakeKube::slice("a", "svc", 1, endpoints);
  };
  const auto change = [&](const Names& endpoints) -> FakeKube::Step {
    const std::string event = FakeKube::event("MODIFIED", slice(endpoints));
    return {{FakeKube::watch_head(), FakeKube::chunk(event)}, /*hold=*/true};
  };
  Told told;
  kube.then({{FakeKube::answer(200, FakeKube::list(1, {slice({"10.0.0.1", "!10.0.0.2"})}))}});
  WorkerList list(config, told.links());
  list.start();
  CHECK(told.comes_to({"b:1", "10.0.0.1:7100"}));
  kube.then(change({"~10.0.0.1", "10.0.0.2"}));
  CHECK(told.comes_to({"b:1", "10.0.0.2:7100"}, "10.0.0.1:7100", "terminating"));
  kube.then(change({"10.0.0.2"}));
  CHECK(told.comes_to({"b:1", "10.0.0.2:7100"}, "10.0.0.1:7100", "gone"));
  kube.then(change({"10.0.0.1", "!10.0.0.2"}));
  CHECK(told.comes_to({"b:1", "10.0.0.1:7100"}, "10.0.0.2:7100", "not ready"));
  const std::vector<WorkerList::Entry> view = list.view();
  CHECK(view[1].text == "kube:ns/svc:7100");
  CHECK(view[1].addresses.at("10.0.0.2:7100").withheld == "not ready");
}

TEST_CASE("entries that make no sense are a start-up error") {
  CHECK_THROWS_AS(Fixture(with_workers("nonsense")), ConfigError);
  CHECK_THROWS_AS(Fixture(with_workers("dns:pool")), ConfigError);
  CHECK_THROWS_AS(Fixture(with_workers("", "/nonexistent/workers")), ConfigError);
  CHECK_THROWS_AS(Fixture(with_workers("kube:a/b/c:1")), ConfigError);
  const File file;
  file.set("kube:ns/svc:1\n");
  CHECK_THROWS_AS(Fixture(with_workers("", file.path)), ConfigError);
}

TEST_CASE("the list looks by itself, and ends while it waits") {
  RouterConfig config = with_workers("a:1");
  config.route.discovery_interval_ms = 3'600'000;
  std::promise<std::string> connected;
  WorkerList list(config,
                  {[&](const std::string& address) { connected.set_value(address); },
                   [](const std::string&) {}, [](const std::string&, const AddressHint&) {}});
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
