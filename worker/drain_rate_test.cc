#include "worker/drain_rate.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Looks every millisecond for `ms`, with `tokens_per_ms` done in each.
struct Looker {
  void run(int64_t ms, int64_t queued, int64_t tokens_per_ms) {
    for (int64_t i = 0; i < ms; ++i) {
      now_us += 1000;
      done += tokens_per_ms;
      rate.look(now_us, queued, done);
    }
  }
  DrainRate rate;
  int64_t now_us = 1'000'000;
  int64_t done = 0;
};

TEST_CASE("the drain rate counts only the time in which something was queued") {
  Looker looker;
  CHECK(looker.rate.tokens_per_s() == 0);
  looker.run(1, 100, 0);
  for (int i = 0; i < 100; ++i) {  // two busy milliseconds out of ten
    looker.run(1, 100, 5);
    looker.run(1, 0, 5);
    looker.run(7, 0, 0);
    looker.run(1, 100, 0);
  }
  CHECK(looker.rate.tokens_per_s() == doctest::Approx(5000).epsilon(0.01));
}

TEST_CASE("a queue that stands still is seen, and forgotten when it moves again") {
  Looker looker;
  looker.run(3000, 100, 10);
  CHECK(looker.rate.tokens_per_s() == doctest::Approx(10'000).epsilon(0.01));
  looker.run(20'000, 100, 0);
  CHECK(looker.rate.tokens_per_s() < 50);
  CHECK(looker.rate.tokens_per_s() >= 1);
  looker.run(20'000, 0, 0);
  CHECK(looker.rate.tokens_per_s() == 0);
  looker.run(200, 100, 10);
  CHECK(looker.rate.tokens_per_s() > 9000);
}

}  // namespace
}  // namespace baton
