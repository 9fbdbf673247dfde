// The open slots: a choice's state under the number that the scheduler gave it. A step in flight
// keeps the states that it samples for, so a slot can be closed and opened again meanwhile. Engine
// thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "model/choice_state.h"
#include "model/engine.h"

namespace baton {

class ChoiceTable {
 public:
  ChoiceTable(int32_t context_len, int32_t vocab_size)
      : context_len_(context_len), vocab_size_(vocab_size) {}

  void update(const StepInput& input);  // closes, then opens
  const std::shared_ptr<ChoiceState>& at(int32_t slot) const;

 private:
  const int32_t context_len_;
  const int32_t vocab_size_;
  std::unordered_map<int32_t, std::shared_ptr<ChoiceState>> choices_;
};

}  // namespace baton
