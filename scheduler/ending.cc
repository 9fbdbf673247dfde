// How choices and sequences end, by themselves or by a cancel. Pages that a step in flight may
// touch stay referenced until it has completed.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler_impl.h"

namespace baton {

void Scheduler::Impl::close_slots(Branch& branch) {
  for (Choice& choice : branch.choices) {
    if (choice.slot >= 0) slots_.close(std::exchange(choice.slot, -1));
  }
}

// Ends one choice; with the last one the request is gone. False if it has no such choice.
bool Scheduler::Impl::end_choice(Request& request, int32_t number) {
  for (const auto& branch : request.branches) {
    std::vector<Choice>& choices = branch->choices;
    const auto choice = std::find_if(choices.begin(), choices.end(),
                                     [&](const Choice& c) { return c.number == number; });
    if (choice == choices.end()) continue;
    if (choice->slot >= 0) slots_.close(choice->slot);
    choices.erase(choice);
    if (choices.empty()) remove_branch(request, *branch);
    return true;
  }
  return false;
}

// Drops a branch whose choices have all ended, and with the last branch the request.
void Scheduler::Impl::remove_branch(Request& request, Branch& branch) {
  in_flight_.drop_after(branch.pages.take_all());
  by_stage_[static_cast<size_t>(branch.stage)].erase(&branch);
  std::erase_if(request.branches, [&](const auto& owned) { return owned.get() == &branch; });
  if (!request.branches.empty()) return;
  ended_.push_back(request.seq);
  requests_.erase(request.seq);
}

void Scheduler::Impl::erase(Request& request) {
  for (const auto& branch : request.branches) {
    close_slots(*branch);
    in_flight_.drop_after(branch->pages.take_all());
    by_stage_[static_cast<size_t>(branch->stage)].erase(branch.get());
  }
  requests_.erase(request.seq);
}

GroupPages Scheduler::Impl::cancel(SeqId seq, int32_t choice) {
  const auto found = requests_.find(seq);
  if (found == requests_.end()) return {};
  Request& request = *found->second;
  Branch& first = *request.branches.front();
  const bool whole = choice < 0;
  if (!request.push) {
    if (whole) {
      erase(request);
    } else {
      end_choice(request, choice);
    }
    return {};
  }
  const bool last = first.choices.size() == 1 && first.choices.front().number == choice;
  if (!whole && !last) {
    end_choice(request, choice);
    return {};
  }
  // Both the transfer and the steps in flight may touch these pages.
  PageTable for_steps = first.pages.share();
  GroupPages for_transfer = first.pages.take_all();
  in_flight_.drop_after(for_steps.take_all());
  erase(request);
  return for_transfer;
}

}  // namespace baton
