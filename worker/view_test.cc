// What a worker shows of its pages and handoffs.
#include <nlohmann/json.hpp>

#include "worker/test_core.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Json = nlohmann::json;

int64_t sum(const Json& group) {
  return group["free"].get<int64_t>() + group["cached"].get<int64_t>() +
         group["used"].get<int64_t>() + group["granted"].get<int64_t>() +
         group["quarantined"].get<int64_t>();
}

TEST_CASE("pages by state sum to the pool, and those that wait for a peer have an age") {
  TestCore w;
  const SequenceSpec first = TestCore::sequence(1, 80, 20);
  const SequenceSpec second = TestCore::sequence(2, 80, 20);
  for (const SequenceSpec& s : {first, second}) {
    w.send_open(s);
    w.send_reserve(s);
  }
  w.wait_ms(1500);
  w.receive(kRouter, Cancel{first.id});
  w.wait_ms(500);
  const Json pages = Json::parse(pages_json(w.core.view()));
  const Json& group = pages["kv_groups"][0];
  CHECK(sum(group) == 64);
  CHECK(group["total"] == 64);
  CHECK(group["granted"] == 5);
  CHECK(group["quarantined"] == 5);
  CHECK(pages["oldest_age_seconds"]["granted"] == doctest::Approx(2.0));
  CHECK(pages["oldest_age_seconds"]["quarantined"] == doctest::Approx(0.5));
  REQUIRE(pages["grants"].size() == 2);
  CHECK(pages["grants"][0]["state"] == "quarantined");
  CHECK(pages["grants"][0]["peer"] == "p");
  CHECK(pages["grants"][0]["pages"] == 5);
  for (const Release& release : w.outbox.take<Release>(kPrefill)) {
    w.receive(kPrefill, Drained{release.slot_gen});
  }
  CHECK(w.core.page_ages().quarantined_us == 0);
  w.receive(kRouter, Cancel{second.id});
}

TEST_CASE("handoffs are shown with their peer, grant and state, on both sides") {
  TestCore w;
  const SequenceSpec pushed = TestCore::sequence(1, 80, 20);
  w.send_prefill(pushed);
  w.send_grant(pushed, 7);
  w.steps_until_idle();
  w.wait_ms(250);
  const SequenceSpec local = TestCore::sequence(2, 80, 20);
  w.send_open(local, /*local=*/true);
  const Json handoffs = Json::parse(handoffs_json(w.core.view()));
  REQUIRE(handoffs["handoffs"].size() == 1);
  const Json& row = handoffs["handoffs"][0];
  CHECK(row["state"] == "transferring");
  CHECK(row["peer"] == "d");
  CHECK(row["slot_gen"] == 7);
  CHECK(row["tokens"] == 80);
  CHECK(row["pages"] == 5);
  CHECK(row["age_seconds"] == doctest::Approx(0.25));
  REQUIRE(handoffs["attempts"].size() == 1);
  CHECK(handoffs["attempts"][0]["state"] == "prefilling");
}

TEST_CASE("names that are no text do not break the answer") {
  WorkerView view;
  view.grants.push_back({.state = "granted", .peer = "\xff\xfe\""});
  CHECK(Json::accept(handoffs_json(view)));
}

TEST_CASE("a worker says what it is and how much it holds") {
  WorkerInfo info{.peer = {.worker_id = "w", .role = Role::kDecode, .kv_compat_id = "kv"},
                  .groups = {{100, 16}, {20, 64}}};
  const Json said = Json::parse(info_json(info));
  CHECK(said["role"] == "decode");
  CHECK(said["clique"].is_null());
  CHECK(said["capacity"]["tokens"] == 1280);
  CHECK(said["capacity"]["kv_groups"][0]["tokens"] == 1600);
  info.peer.clique = "u.1";
  CHECK(Json::parse(info_json(info))["clique"] == "u.1");
}

TEST_CASE("a view is asked for through the inbox") {
  TestCore w;
  auto answer = std::make_shared<std::promise<WorkerView>>();
  std::future<WorkerView> view = answer->get_future();
  w.core.handle(ViewWish{std::move(answer)});
  CHECK(view.get().pages.at(0).total == 64);
}

TEST_CASE("a question that comes after a failure is answered, not left with a broken promise") {
  TestCore w;
  w.core.handle(MoverEvent{.kind = MoverEvent::Kind::kBroken, .error = "the GPU is lost"});
  auto answer = std::make_shared<std::promise<WorkerView>>();
  std::future<WorkerView> view = answer->get_future();
  w.core.handle(ViewWish{std::move(answer)});
  REQUIRE(view.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK(view.get().pages[0].total == 64);
}

}  // namespace
}  // namespace baton
