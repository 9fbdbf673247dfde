// Which of a GPU's tables of token counts belongs to which slot, and how far it has come. A table
// is a cache of a choice's tokens: it is built from them when a step needs it and has none, or has
// fallen behind; one that is not needed may be taken for another slot at any time. Engine thread
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace baton {

class CountPlaces {
 public:
  // REQUIRES: no step uses more tables than there are.
  explicit CountPlaces(int32_t num_tables) : places_(static_cast<size_t>(num_tables)) {}

  struct Use {
    int32_t table = 0;
    bool build = false;     // first, from the tokens that the host knows
    bool add_last = false;  // then the token before the one to be drawn
  };
  // For drawing the token at `position` in the current step; `known`: the choice's tokens that the
  // host knows, all those before `position` or all but the last.
  Use use(int32_t slot, int32_t known, int32_t position);
  void begin_step() { ++step_; }
  void close(int32_t slot);

 private:
  struct Place {
    int32_t slot = -1;  // -1: free
    int32_t held = 0;   // tokens in the table
    uint64_t step = 0;  // that used it last
  };
  int32_t take(int32_t slot);

  std::vector<Place> places_;
  std::unordered_map<int32_t, int32_t> by_slot_;
  uint64_t step_ = 0;
};

}  // namespace baton
