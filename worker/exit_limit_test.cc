#include "worker/exit_limit.h"

#include <future>

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("an end that hangs is cut short") {
  std::promise<void> cut;
  const ExitLimit limit(std::chrono::milliseconds(5), [&] { cut.set_value(); });
  CHECK(cut.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
}

TEST_CASE("an end in time is left alone, and does not wait for its limit") {
  bool cut = false;
  {
    const ExitLimit limit(std::chrono::hours(1), [&] { cut = true; });
  }
  CHECK_FALSE(cut);
}

}  // namespace
}  // namespace baton
