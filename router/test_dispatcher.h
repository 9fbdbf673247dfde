// A dispatcher and workers that are only names: what is sent to them is kept, what they say is told
// by the test. Time is a fake clock's.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "router/dispatcher.h"
#include "router/testing.h"

namespace baton {

inline constexpr LinkId kP = 1, kD1 = 2, kD2 = 3;
inline constexpr Epoch kEpoch = 99;

inline RouteConfig test_route() {
  RouteConfig route;
  route.local_prompt_tokens = 4;
  return route;
}

// A dispatcher with one prefill and two decode workers, none of them real.
struct DispatcherRig {
  explicit DispatcherRig(RouteConfig route = test_route()) : config(std::move(route)) {}

  void up(LinkId link, Role role, const std::string& id, const std::string& compat = "m") {
    dispatcher.on_link_up(link, {.worker_id = id,
                                 .epoch = link,
                                 .role = role,
                                 .kv_compat_id = compat,
                                 .context_len = 1000});
  }
  void up_all() {
    up(kP, Role::kPrefill, "p");
    up(kD1, Role::kDecode, "d1");
    up(kD2, Role::kDecode, "d2");
  }
  static GenerationRequest request_of(int32_t prompt_len, int32_t max_tokens = 10, int32_t n = 1) {
    GenerationRequest request;
    request.spec.n = n;
    request.spec.seed = 7;
    request.spec.max_tokens = max_tokens;
    for (int32_t i = 0; i < prompt_len; ++i) request.prompt.push_back(100 + i);
    return request;
  }
  GenerationId submit(int32_t prompt_len, int32_t max_tokens = 10, int32_t n = 1) {
    return dispatcher.submit(request_of(prompt_len, max_tokens, n), sink);
  }
  GenerationId submit_with_priority(int32_t priority) {
    GenerationRequest request = request_of(8);
    request.spec.priority = priority;
    return dispatcher.submit(std::move(request), sink);
  }
  double metric(const std::string& series) const {
    const std::string text = metrics.text();
    const size_t at = text.find("\n" + series);
    return at == std::string::npos ? -1 : std::stod(text.substr(text.find(' ', at + 1)));
  }
  void token(LinkId from, const AttemptId& id, int32_t position, TokenId token, int32_t choice = 0,
             FinishReason finish = FinishReason::kNone) {
    dispatcher.on_message(from, Events{{{.id = id,
                                         .choice = choice,
                                         .position = position,
                                         .token = token,
                                         .finish = finish}}});
  }
  void wait_ms(int64_t ms) {
    clock.advance_us(ms * 1000);
    dispatcher.on_timer();
  }
  // Submits a prompt of 8 tokens and lets D1 have it, with P's first token 50.
  AttemptId start(int32_t n = 1) {
    submit(8, 10, n);
    const AttemptId id = outbox.take<Prefill>(kP).at(0).id;
    dispatcher.on_message(kP, Placed{id, "d1"});
    for (int32_t choice = 0; choice < n; ++choice) token(kP, id, 8, 50 + choice, choice);
    outbox.take<Open>(kD1);
    outbox.take<Open>(kD2);
    outbox.take<Close>(kD2);
    return id;
  }

  RouteConfig config;
  FakeClock clock;
  FakeOutbox outbox;
  RouterMetrics metrics{"m"};
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  Placement placement{config, 1};
  Dispatcher dispatcher{config, kEpoch, outbox, clock, placement, metrics};
};

}  // namespace baton
