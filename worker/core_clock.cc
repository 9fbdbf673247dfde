// The core's part that looks at the clock: status, deadlines, the drain; and what it shows of
// itself.
#include "worker/core.h"

namespace baton {

void WorkerCore::on_timer() {
  push_side_.on_timer();
  landing_side_.on_timer();
  end_overdue();
  drain_rate_.look(parts_.clock.now_us(), queued_tokens(),
                   counters_.prompt_tokens + counters_.prompt_tokens_cached);
  publish_status();
}

// ---- attempts that end before they are finished ----

// Whether the router still waits for something from here. What P has committed is D's; what drains
// has been cancelled.
bool WorkerCore::owes(const AttemptId& id) const {
  if (*landing_side_.stage(id) != '\0') return true;
  const std::string_view stage = push_side_.stage(id);
  return !stage.empty() && stage != "committed" && stage != "draining";
}

// Tells the router, then goes the way of its CANCEL: pages come home when the last step and the
// last copy that may touch them have ended.
void WorkerCore::give_up(Failed failed) {
  const AttemptId id = failed.id;
  routers_.send(id.id, std::move(failed));
  push_side_.on_cancel(id);
  landing_side_.on_cancel(id, -1);
}

void WorkerCore::end_overdue() {
  const int64_t now = parts_.clock.now_us();
  for (const AttemptId& id : attempts_.take_expired(now)) {
    if (!owes(id)) continue;
    ++counters_.deadlines_missed;
    give_up({.id = id, .retryable = false, .message = "deadline: not finished in its time"});
  }
  const int64_t serve_us = (config_.drain_timeout_ms - config_.drain_hand_back_ms) * 1000;
  if (draining_ && now - drain_since_us_ >= serve_us) hand_back("the worker is leaving");
}

void WorkerCore::hand_back(const std::string& why) {
  for (const AttemptId& id : attempts_.take_all()) {
    if (!owes(id)) continue;
    ++counters_.handed_back;
    give_up({.id = id, .retryable = true, .message = why});
  }
}

// ---- what it shows ----

int64_t WorkerCore::queued_tokens() const {
  int64_t tokens = parts_.scheduler.queued_tokens() + push_side_.queued_tokens();
  for (const StepSize& step : steps_in_flight_) tokens += step.prefill_tokens;
  return tokens;
}

WorkerStatus WorkerCore::status() const {
  WorkerStatus status;
  status.running = parts_.scheduler.running();
  status.waiting = parts_.scheduler.waiting() + static_cast<int32_t>(push_side_.size());
  status.queued_tokens = queued_tokens();
  status.queue_tokens_per_s = drain_rate_.tokens_per_s();
  status.steps_done = counters_.steps;
  status.prefill_tokens_per_s = counters_.prefill_tokens_per_s;
  status.step_ms = counters_.step_ms;
  status.draining = draining_;
  status.largest_prompt = self_.context_len;
  for (int32_t g = 0; g < parts_.ledger.num_groups(); ++g) {
    status.pages.push_back(parts_.ledger.counts(g));
    if (parts_.layout.groups[g].window > 0) continue;  // holds a window of any length of text
    status.largest_prompt = std::min(
        status.largest_prompt, status.pages.back().total * parts_.layout.groups[g].page_tokens);
  }
  return status;
}

void WorkerCore::publish_status() {
  if (routers_.empty()) return;
  const int64_t now = parts_.clock.now_us();
  if (now - last_status_us_ < config_.status_interval_ms * 1000) return;
  WorkerStatus current = status();
  if (current == last_status_ && now - last_status_us_ < config_.status_keepalive_ms * 1000) return;
  routers_.send_all(current);
  last_status_ = std::move(current);
  last_status_us_ = now;
}

PageAges WorkerCore::page_ages() const {
  return {.granted_us = landing_side_.oldest_grant_us(PageState::kGranted),
          .quarantined_us = landing_side_.oldest_grant_us(PageState::kQuarantined)};
}

WorkerView WorkerCore::view() const {
  return {.pages = status().pages,
          .ages = page_ages(),
          .handoffs = push_side_.views(),
          .grants = landing_side_.grant_views(),
          .attempts = landing_side_.attempt_views()};
}

int64_t WorkerCore::step_running_us() const {
  return steps_in_flight_.empty() ? 0 : parts_.clock.now_us() - step_begun_us_;
}

// ---- drain ----

void WorkerCore::begin_drain() {
  if (std::exchange(draining_, true)) return;
  drain_since_us_ = parts_.clock.now_us();
  routers_.send_all(Draining{});
}

// Our own pages are waited for until every copy from them has ended. Pages that a silent peer may
// still write to are not: our end is the end of them.
bool WorkerCore::drained() const {
  return draining_ && push_side_.idle() && landing_side_.size() == 0 && steps_in_flight_.empty();
}

}  // namespace baton
