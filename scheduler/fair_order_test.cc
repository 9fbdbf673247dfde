#include "scheduler/fair_order.h"

#include <map>
#include <vector>

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr Epoch kLoud = 1, kQuiet = 2;

TEST_CASE("one router's work keeps its order") {
  FairOrder order(100);
  const int64_t first = order.place(kLoud, 0, 100).order;
  const int64_t second = order.place(kLoud, 0, 1).order;
  CHECK(first < second);
  CHECK(second < order.place(kLoud, 0, 5).order);
}

TEST_CASE("a flood of one router waits behind itself") {
  FairOrder order(100);
  std::multimap<int64_t, Epoch> queue;
  for (int i = 0; i < 100; ++i) queue.emplace(order.place(kLoud, 0, 10).order, kLoud);
  for (int i = 0; i < 3; ++i) {  // served: three of a hundred
    order.serve({queue.begin()->first, queue.begin()->first});
    queue.erase(queue.begin());
  }
  for (int i = 0; i < 10; ++i) queue.emplace(order.place(kQuiet, 0, 10).order, kQuiet);
  // From here on they take turns.
  int quiet = 0;
  auto next = queue.begin();
  for (int i = 0; i < 20; ++i, ++next) quiet += next->second == kQuiet ? 1 : 0;
  CHECK(quiet >= 9);
}

TEST_CASE("shares are of work, not of requests") {
  FairOrder order(100);
  std::multimap<int64_t, Epoch> queue;
  for (int i = 0; i < 10; ++i) queue.emplace(order.place(kLoud, 0, 1000).order, kLoud);
  for (int i = 0; i < 100; ++i) queue.emplace(order.place(kQuiet, 0, 10).order, kQuiet);
  // All of the small ones are as much as one of the large.
  int loud_before_last_quiet = 0, quiet = 0;
  for (const auto& [place, router] : queue) {
    quiet += router == kQuiet ? 1 : 0;
    if (quiet < 100 && router == kLoud) ++loud_before_last_quiet;
  }
  CHECK(loud_before_last_quiet == 1);
}

TEST_CASE("a router that was away has saved nothing up") {
  FairOrder order(100);
  Place last;
  for (int i = 0; i < 50; ++i) order.serve(last = order.place(kLoud, 0, 10));
  CHECK(order.place(kQuiet, 0, 10).start == last.start);
}

TEST_CASE("what was served before everybody was done counts for nobody") {
  FairOrder order(100);
  order.serve(order.place(kLoud, 0, 1'000'000));
  order.reset();
  const Place loud = order.place(kLoud, 0, 10);
  CHECK(order.place(kQuiet, 0, 10).start == loud.start);
}

TEST_CASE("a priority is worth so many tokens, no more") {
  FairOrder order(100);
  const Place low = order.place(kLoud, 1, 10);
  std::vector<Place> urgent;
  for (int i = 0; i < 20; ++i) urgent.push_back(order.place(kLoud, 0, 10));
  CHECK(urgent[5].order < low.order);
  CHECK(urgent[19].order > low.order);
}

}  // namespace
}  // namespace baton
