// Where the time to a first token went, as far as the router sees it: no clock but its own is
// compared. Plain values, any thread.
//
//   arrival ─queue─► OPEN, PREFILL sent ─reserve─► PLACED ─prefill─► prompt computed ─► first token
//
// A prefill worker sends the first token itself, so the pages' way to the decode worker is not part
// of the TTFT; only where that token was lost and the decode worker's repeat of it comes first is
// the last stretch the handoff's.
#pragma once

#include <cstdint>

namespace baton {

// On the router's clock, of the attempt that brought the first token. 0: was not seen.
struct FirstTokenTimes {
  int64_t sent_us = 0;      // OPEN and PREFILL
  int64_t placed_us = 0;    // PLACED: a decode worker has granted room, or will compute it itself
  int64_t computed_us = 0;  // USAGE: the prompt is computed
  bool landed = false;      // the decode worker brought it, after a handoff
};

// Seconds; their sum is the TTFT.
struct TtftSplit {
  double queue_s = 0;        // in the router: text work, admission, no room, attempts before this
  double reserve_s = 0;      // the prefill worker's queue and its reservation at a decode worker
  double prefill_s = 0;      // the prompt's wait for steps, and the steps
  double transfer_s = 0;     // the handoff, where it is waited for
  double first_token_s = 0;  // from the prompt's end to the first token
  double ttft_s() const { return queue_s + reserve_s + prefill_s + transfer_s + first_token_s; }
};

// A time that was not seen, or lies outside of its neighbours, makes its part 0.
TtftSplit split_ttft(int64_t received_us, const FirstTokenTimes& times, int64_t first_token_us);

}  // namespace baton
