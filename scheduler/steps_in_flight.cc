// Keeps pages from reuse while a step in flight may read or write them.
#include "scheduler/steps_in_flight.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

StepRecord StepsInFlight::pop() {
  CHECK(!steps_.empty()) << "a step completed that was never given out";
  StepRecord step = std::move(steps_.front());
  steps_.pop_front();
  return step;
}

void StepsInFlight::drop_after(PageRef page) {
  if (!steps_.empty()) steps_.back().held.push_back(std::move(page));
}

void StepsInFlight::drop_after(GroupPages pages) {
  for (std::vector<PageRef>& group : pages) {
    for (; !group.empty(); group.pop_back()) drop_after(std::move(group.back()));
  }
}

int32_t StepsInFlight::held(int32_t group) const {
  int64_t count = 0;
  for (const StepRecord& step : steps_) {
    count += std::count_if(step.held.begin(), step.held.end(),
                           [group](const PageRef& page) { return page.group() == group; });
  }
  return static_cast<int32_t>(count);
}

}  // namespace baton
