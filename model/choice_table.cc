#include "model/choice_table.h"

#include "base/check.h"

namespace baton {

void ChoiceTable::update(const StepInput& input) {
  for (const int32_t slot : input.closed_slots) {
    CHECK_EQ(choices_.erase(slot), 1U) << "closing slot " << slot << ", which is not open";
  }
  for (const SlotOpen& open : input.opened_slots) {
    const bool opened =
        choices_
            .try_emplace(open.slot, std::make_shared<ChoiceState>(open, context_len_, vocab_size_))
            .second;
    CHECK(opened) << "slot " << open.slot << " is open already";
  }
}

const std::shared_ptr<ChoiceState>& ChoiceTable::at(int32_t slot) const {
  const auto it = choices_.find(slot);
  CHECK(it != choices_.end()) << "slot " << slot << " is not open";
  return it->second;
}

}  // namespace baton
