// Puts the token events of one choice in order: P and D both stream, over two connections, and D
// repeats P's first token. Used by the dispatcher; router loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/messages.h"

namespace baton {

// Releases positions without a hole and without a repeat. The caller has checked that the event is
// of the current attempt.
class ChoiceRelay {
 public:
  enum class Verdict : uint8_t { kReleased, kRepeat, kHeld, kOverflow };

  // `first_position`: of the first generated token, which is the prompt's length.
  explicit ChoiceRelay(int32_t first_position) : next_position_(first_position) {}

  // Appends to `released` what is now next in line. kOverflow: too many events wait behind a hole
  // that does not close; the attempt is broken and should be replayed.
  Verdict offer(TokenEvent event, std::vector<TokenEvent>& released);
  // A new attempt starts at next_position(): what the old one sent ahead is not to be mixed in.
  void forget_held() { held_.clear(); }

  int32_t next_position() const { return next_position_; }

 private:
  static constexpr size_t kHeldMax = 64;

  int32_t next_position_;
  std::map<int32_t, TokenEvent> held_;  // by position, all beyond next_position_
};

}  // namespace baton
