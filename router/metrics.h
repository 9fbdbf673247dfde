// Every number the router tells, in one place; metric_table.h says what each one is. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/link_stats.h"
#include "base/messages.h"
#include "config/config.h"
#include "router/placement.h"
#include "router/ttft_split.h"

namespace baton {

// What one finished client request tells, once.
struct RequestStats {
  std::string finished_reason;  // stop, length, abort, error: of its first choice
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  int32_t n = 1;
  double e2e_s = 0;
};

inline constexpr const char* kRejectReasons[] = {"queue_full", "text_queue_full", "ttft",
                                                 "no_worker",  "workers_full",    "shutting_down"};

class RouterMetrics {
 public:
  // Throws ConfigError, as router_metric_infos().
  explicit RouterMetrics(const std::string& model_name, const MetricsConfig& config = {});
  ~RouterMetrics();

  void first_token(const TtftSplit& split);
  void next_token(double gap_s);
  void choice_done(double tpot_s);  // of a choice with two tokens or more
  void request_done(const RequestStats& stats);
  void http_answer(const std::string& route, int status);
  void placed(double queue_s, bool local);
  void landed(double gap_s);  // since P's first token D has spoken
  void refused();
  // Answered 429 or 503 before its first token; `reason` is one of kRejectReasons.
  void rejected(const std::string& reason);
  void predicted_ttft(double error_s);  // how much later than predicted the first token came
  void unanswered();                    // tried elsewhere after route.placed_wait_ms
  void replayed();
  void stale_message();
  void repeated_token();

  void set_load(size_t active, size_t waiting, size_t connections);
  void set_links(const LinkStats& stats);
  void set_stale_sources(size_t sources);
  void set_workers(const std::map<LinkId, Worker>& workers);

  std::string text() const;  // Prometheus text format 0.0.4

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace baton
