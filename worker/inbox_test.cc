#include "worker/inbox.h"

#include <chrono>
#include <thread>

#include "tests/doctest.h"

using namespace baton;

namespace {

uint64_t step_of(const WorkerEvent& event) {
  return std::get<StepOutput>(event).step;
}

}  // namespace

TEST_CASE("a loop that polls takes each event when it comes, and all there are") {
  Inbox inbox;
  inbox.linger(std::chrono::minutes(10));
  uint64_t taken = 0;
  const std::jthread pusher([&inbox] {
    for (uint64_t step = 1; step <= 1000; ++step) inbox.push(StepOutput{.step = step});
  });
  while (taken < 1000) {
    const std::vector<WorkerEvent> events = inbox.wait(std::chrono::minutes(10));
    REQUIRE(!events.empty());
    for (const WorkerEvent& event : events) CHECK(step_of(event) == ++taken);
  }
}

TEST_CASE("a loop that polls comes back when the time is over, and sleeps the next time") {
  Inbox inbox;
  inbox.linger(std::chrono::milliseconds(5));
  CHECK(inbox.wait(std::chrono::milliseconds(1)).empty());
  CHECK(inbox.wait(std::chrono::milliseconds(1)).empty());
  inbox.push(StepOutput{.step = 7});
  const std::vector<WorkerEvent> events = inbox.wait(std::chrono::minutes(10));
  REQUIRE(events.size() == 1);
  CHECK(step_of(events.front()) == 7);
}
