// Lines `request_refused` of the log: why a request for tokens was answered with an error before
// anything was done for it. So many a second at most, since whoever is refused may come back at
// once; a line says how many before it were left out. Router loop thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace baton {

// Which of many events of one kind get a line.
class LineBudget {
 public:
  static constexpr int32_t kLinesPerSecond = 10;

  // How many were left out since the last line; nothing: this one is left out, too.
  std::optional<int64_t> take(int64_t now_us);

 private:
  int64_t second_begins_us_ = 0;
  int32_t lines_ = 0;  // in this second
  int64_t left_out_ = 0;
};

class RefusalLog {
 public:
  // `enabled`: http.log_requests.
  RefusalLog(const Clock& clock, bool enabled) : clock_(clock), enabled_(enabled) {}

  void add(const std::string& request_id, const std::string& traceparent, const Status& status);

 private:
  const Clock& clock_;
  const bool enabled_;
  LineBudget budget_;
};

}  // namespace baton
