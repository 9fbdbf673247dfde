#include "router/refusal_log.h"

#include <utility>

#include "base/log.h"
#include "router/openai_error.h"

namespace baton {

std::optional<int64_t> LineBudget::take(int64_t now_us) {
  if (now_us - second_begins_us_ >= 1'000'000) {
    second_begins_us_ = now_us;
    lines_ = 0;
  }
  if (lines_ == kLinesPerSecond) {
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  return std::exchange(left_out_, 0);
}

void RefusalLog::add(const std::string& request_id, const std::string& traceparent,
                     const Status& status) {
  if (!enabled_) return;
  const std::optional<int64_t> left_out = budget_.take(clock_.now_us());
  if (!left_out) return;
  log_info("request_refused", {{"request_id", request_id},
                               {"traceparent", traceparent},
                               {"status", http_status(status.code())},
                               {"reason", status.message()},
                               {"left_out", *left_out}});
}

}  // namespace baton
