// The router's numbers: how they add up, and what their edges may be.
#include "router/metrics.h"

#include "base/status.h"
#include "router/metric_table.h"
#include "router/test_dispatcher.h"

#include "tests/doctest.h"

namespace baton {
namespace {

double value(const std::string& text, const std::string& series) {
  const size_t at = text.find("\n" + series);
  REQUIRE_MESSAGE(at != std::string::npos, series);
  return std::stod(text.substr(text.find("} ", at) + 2));
}

std::string refusal(const MetricsConfig& config) {
  try {
    const RouterMetrics metrics("m", config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Keeps how the first token came.
struct TimesSink final : GenerationSink {
  bool on_token(int32_t, const TokenEvent&) override { return true; }
  void on_prompt_logprobs(int32_t, const PromptLogprobs&) override {}
  void on_cached_tokens(int32_t, int32_t) override {}
  void on_failed(int32_t, const Status&) override {}
  void on_first_token(const FirstTokenTimes& told) override {
    ++count;
    times = told;
  }
  int count = 0;
  FirstTokenTimes times;
};

struct SplitRig : DispatcherRig {
  SplitRig() { up_all(); }
  AttemptId submit_timed(int32_t prompt_len, int32_t max_tokens = 10) {
    received_us = clock.now_us();
    clock.advance_us(1'000);
    dispatcher.submit(request_of(prompt_len, max_tokens), timed);
    const auto sent = outbox.take<Prefill>(kP);
    return sent.empty() ? outbox.take<Open>(kD1).at(0).id : sent.at(0).id;
  }
  TtftSplit split() const {
    REQUIRE(timed->count == 1);
    return split_ttft(received_us, timed->times, clock.now_us());
  }
  int64_t received_us = 0;
  std::shared_ptr<TimesSink> timed = std::make_shared<TimesSink>();
};

void check_split(const TtftSplit& split, const TtftSplit& want) {
  CHECK(split.queue_s == doctest::Approx(want.queue_s));
  CHECK(split.reserve_s == doctest::Approx(want.reserve_s));
  CHECK(split.prefill_s == doctest::Approx(want.prefill_s));
  CHECK(split.transfer_s == doctest::Approx(want.transfer_s));
  CHECK(split.first_token_s == doctest::Approx(want.first_token_s));
}

TEST_CASE("the parts of a handed-over request's TTFT are told apart and sum to it") {
  SplitRig rig;
  const AttemptId id = rig.submit_timed(8);
  rig.clock.advance_us(20'000);
  rig.dispatcher.on_message(kP, Placed{id, "d1"});
  rig.clock.advance_us(300'000);
  rig.dispatcher.on_message(kP, Usage{id, 0});
  rig.clock.advance_us(4'000);
  rig.token(kP, id, 8, 50);
  check_split(rig.split(),
              {.queue_s = .001, .reserve_s = .02, .prefill_s = .3, .first_token_s = .004});
  CHECK(rig.split().ttft_s() == doctest::Approx(.325));

  rig.clock.advance_us(70'000);
  rig.token(kD1, id, 8, 50);
  CHECK(rig.timed->count == 1);
  CHECK(value(rig.metrics.text(), "baton_handoff_gap_seconds_sum") == doctest::Approx(.07));
}

TEST_CASE("the handoff is in the TTFT only where the decode worker's token comes first") {
  SplitRig rig;
  const AttemptId id = rig.submit_timed(8);
  rig.dispatcher.on_message(kP, Placed{id, "d1"});
  rig.dispatcher.on_message(kP, Usage{id, 0});
  rig.clock.advance_us(70'000);
  rig.token(kD1, id, 8, 50);
  check_split(rig.split(), {.queue_s = .001, .transfer_s = .07});
}

TEST_CASE("a prompt computed where it decodes has no reservation") {
  SplitRig rig;
  const AttemptId id = rig.submit_timed(4);
  rig.clock.advance_us(50'000);
  rig.dispatcher.on_message(kD1, Usage{id, 0});
  rig.token(kD1, id, 4, 50);
  check_split(rig.split(), {.queue_s = .001, .prefill_s = .05});
}

TEST_CASE("time lost with a worker counts as queue of the attempt that brought the token") {
  SplitRig rig;
  const AttemptId lost = rig.submit_timed(8);
  rig.dispatcher.on_message(kP, Placed{lost, "d1"});
  rig.clock.advance_us(500'000);
  rig.dispatcher.on_message(kP, Failed{lost, true, "gone"});
  const AttemptId id = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.clock.advance_us(10'000);
  rig.dispatcher.on_message(kP, Placed{id, "d1"});
  rig.clock.advance_us(100'000);
  rig.token(kP, id, 8, 50);
  check_split(rig.split(), {.queue_s = .501, .reserve_s = .01, .first_token_s = .1});
}

TEST_CASE("whatever the times are, no part is negative and the parts sum to the TTFT") {
  for (const int64_t sent : {0, 5, 50, 500})
    for (const int64_t placed : {0, 7, 70, 700})
      for (const int64_t computed : {0, 3, 90, 900})
        for (const bool landed : {false, true}) {
          const TtftSplit split = split_ttft(10, {sent, placed, computed, landed}, 110);
          for (const double part : {split.queue_s, split.reserve_s, split.prefill_s,
                                    split.transfer_s, split.first_token_s})
            CHECK(part >= 0);
          CHECK(split.ttft_s() == doctest::Approx(100e-6));
        }
}

TEST_CASE("TTFT and each of its parts count every first token") {
  RouterMetrics metrics("m");
  metrics.first_token({.queue_s = .1, .prefill_s = .3, .first_token_s = .05});
  const std::string text = metrics.text();
  CHECK(value(text, "baton_ttft_seconds_count{") == 1);
  CHECK(value(text, "baton_ttft_seconds_sum{") == doctest::Approx(.45));
  for (const char* part : {"queue", "reserve", "prefill", "transfer", "first_token"}) {
    const std::string labels =
        "{engine=\"0\",model_name=\"m\",part=\"" + std::string(part) + "\",role=\"router\"}";
    CHECK(value(text, "baton_ttft_part_seconds_count" + labels) == 1);
  }
  CHECK(value(text, "vllm:time_to_first_token_seconds_count{") == 1);
}

TEST_CASE("edges come from the settings, and an objective between them is refused at the start") {
  const RouterMetrics metrics(
      "m", {.ttft_edges_s = "0.2,0.7", .ttft_slo_s = .7, .tpot_slo_s = .05, .vllm_aliases = false});
  const std::string text = metrics.text();
  CHECK(text.find("baton_ttft_seconds_bucket{engine=\"0\",model_name=\"m\",role=\"router\","
                  "le=\"0.7\"} 0") != std::string::npos);
  CHECK(text.find("vllm:") == std::string::npos);
  CHECK(value(text,
              "baton_slo_seconds{engine=\"0\",model_name=\"m\",role=\"router\","
              "slo=\"ttft\"}") == .7);

  CHECK(refusal({.ttft_slo_s = .3}).find("metrics.ttft_slo_s: got 0.3, want one of") == 0);
  CHECK(refusal({.tpot_slo_s = .033}).find("metrics.tpot_slo_s: got 0.033, want one of") == 0);
  CHECK(refusal({.ttft_edges_s = "1,0.5"}).find("metrics.ttft_edges_s: got \"0.5\"") == 0);
  CHECK(refusal({}).empty());
}

TEST_CASE("workers are counted by role and state") {
  SplitRig rig;
  rig.placement.set_draining(kD2);
  rig.metrics.set_workers(rig.placement.workers());
  const std::string text = rig.metrics.text();
  const auto workers = [&](const std::string& role, const std::string& state) {
    return value(text, "baton_workers{engine=\"0\",model_name=\"m\",role=\"router\",state=\"" +
                           state + "\",worker_role=\"" + role + "\"}");
  };
  CHECK(workers("prefill", "ready") == 1);
  CHECK(workers("decode", "ready") == 1);
  CHECK(workers("decode", "draining") == 1);
  CHECK(workers("both", "ready") == 0);
}

}  // namespace
}  // namespace baton
