// Which refusals get a line in the log.
#include "router/refusal_log.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE(
    "a flood of refused requests writes so many lines a second, and says how many it left out") {
  LineBudget budget;
  constexpr int64_t kBeginUs = 5'000'000;
  for (int i = 0; i < LineBudget::kLinesPerSecond; ++i) CHECK(budget.take(kBeginUs + i) == 0);
  for (int i = 0; i < 1000; ++i) CHECK(!budget.take(kBeginUs + 999'000).has_value());
  CHECK(budget.take(kBeginUs + 1'000'000) == 1000);
  CHECK(budget.take(kBeginUs + 1'000'001) == 0);
}

}  // namespace
}  // namespace baton
