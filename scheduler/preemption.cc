// Growth of running choices, and what happens when the pool is empty: the youngest of the lowest
// priority gives up its pages, keeps its tokens and computes them again later.
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler_impl.h"

namespace baton {

bool Scheduler::Impl::needs_page(const Branch& branch, int32_t group) const {
  const PageRef& page = branch.pages.at(group, branch.next_pos);
  return !page || (branch.shares_tail && !ledger_.writable(page));
}

// Takes what the next position needs in all groups, or nothing.
bool Scheduler::Impl::take_growth(Building& building, Branch& branch) {
  for (int32_t g = 0; g < ledger_.num_groups(); ++g) {
    if (needs_page(branch, g) && ledger_.available(g) == 0) return false;
  }
  for (int32_t g = 0; g < ledger_.num_groups(); ++g) {
    if (!needs_page(branch, g)) continue;
    PageRef page = std::move(ledger_.take(g, 1).front());
    const int32_t page_id = page.page_id();
    PageRef shared = branch.pages.replace(g, branch.next_pos, std::move(page));
    if (!shared) continue;
    building.prepared.input.page_copies.push_back({g, shared.page_id(), page_id});
    building.record.held.push_back(std::move(shared));
  }
  branch.shares_tail = false;
  return true;
}

bool Scheduler::Impl::grow(Building& building, Branch& branch) {
  while (!take_growth(building, branch)) {
    const bool waits = waits_for_held_pages(branch);
    Branch* victim = waits ? nullptr : victim_for(branch);
    if (victim != nullptr) {
      preempt(*victim);
    } else if (!waits && branch.shares_tail && local_running() == 1) {
      // Alone, it holds a page to copy from and lacks one to copy to; computed again, it needs one.
      preempt(branch);
      return false;
    } else {
      stalled_ = true;
      return false;
    }
  }
  return true;
}

// Pages come home when a step in flight completes: no need to preempt more for them.
bool Scheduler::Impl::waits_for_held_pages(const Branch& branch) const {
  for (int32_t g = 0; g < ledger_.num_groups(); ++g) {
    const bool lacks = needs_page(branch, g) && ledger_.available(g) == 0;
    if (lacks && in_flight_.held(g) > 0) return true;
  }
  return false;
}

// The last in order that runs here after `branch`. A prompt that is being pushed does not grow and
// ends by itself; its pages are the transfer's.
Branch* Scheduler::Impl::victim_for(const Branch& branch) const {
  Branch* victim = nullptr;
  for (Stage stage : {Stage::kDecoding, Stage::kPrefilling}) {
    const BranchSet& set = branches(stage);
    for (auto last = set.rbegin(); last != set.rend(); ++last) {
      if ((*last)->request->push) continue;
      if (BranchOrder()(victim == nullptr ? &branch : victim, *last)) victim = *last;
      break;
    }
  }
  return victim;
}

void Scheduler::Impl::preempt(Branch& branch) {
  ++preemptions_;
  in_flight_.drop_after(branch.pages.take_all());
  close_slots(branch);
  branch.next_pos = branch.computed = branch.published = 0;
  branch.prefix.assign(layout_.groups.size(), {});
  branch.shares_tail = false;
  move_to(branch, Stage::kPreempted);
}

}  // namespace baton
