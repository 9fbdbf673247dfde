#include "base/link_dialer.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("waits double up to a second, and start over after a success") {
  LinkDialer dialer(50);
  int64_t now_us = 0;
  dialer.add("b:1", now_us);
  for (const int64_t wait_ms : {50, 100, 200, 400, 800, 1000, 1000}) {
    REQUIRE(dialer.take_due(now_us).size() == 1);
    CHECK(dialer.take_due(now_us).empty());  // busy
    dialer.started("b:1", 7);
    dialer.ended("b:1", 7, now_us, "refused");
    CHECK(dialer.next_due_us() == now_us + wait_ms * 1000);
    now_us = dialer.next_due_us();
  }
  REQUIRE(dialer.take_due(now_us).size() == 1);
  dialer.started("b:1", 8);
  dialer.succeeded("b:1");
  dialer.ended("b:1", 7, now_us, "late");
  CHECK(dialer.next_due_us() == INT64_MAX);
  dialer.ended("b:1", 8, now_us, "closed");
  CHECK(dialer.next_due_us() == now_us + 50'000);
}

TEST_CASE("a removed address is forgotten, its answers too") {
  LinkDialer dialer(50);
  dialer.add("b:1", 0);
  dialer.take_due(0);
  CHECK(dialer.awaits_link("b:1"));
  dialer.started("b:1", 4);
  CHECK_FALSE(dialer.awaits_link("b:1"));
  CHECK(dialer.remove("b:1") == 4);
  dialer.ended("b:1", 4, 0, "late");
  CHECK(dialer.next_due_us() == INT64_MAX);
}

TEST_CASE("a released address stays while its link is up, may come back, and is then forgotten") {
  LinkDialer dialer(50);
  dialer.add("b:1", 0);
  dialer.take_due(0);
  dialer.started("b:1", 4);
  dialer.succeeded("b:1");
  CHECK(dialer.release("b:1") == LinkDialer::kNoLink);  // nothing is dropped
  dialer.add("b:1", 0);                                 // back before the link has ended
  CHECK(dialer.take_due(0).empty());
  dialer.ended("b:1", 4, 0, "closed");
  CHECK(dialer.next_due_us() == 50'000);
  dialer.take_due(50'000);
  dialer.started("b:1", 5);
  dialer.succeeded("b:1");
  CHECK(dialer.reconnects() == 1);
  CHECK(dialer.release("b:1") == LinkDialer::kNoLink);
  dialer.ended("b:1", 5, 0, "closed");
  CHECK(dialer.next_due_us() == INT64_MAX);
}

TEST_CASE("a released address that is not up is dropped at once") {
  LinkDialer dialer(50);
  dialer.add("b:1", 0);
  dialer.take_due(0);
  dialer.started("b:1", 4);
  CHECK(dialer.release("b:1") == 4);
  dialer.ended("b:1", 4, 0, "released");
  CHECK(dialer.next_due_us() == INT64_MAX);
}

}  // namespace
}  // namespace baton
