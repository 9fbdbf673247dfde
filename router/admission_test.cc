// Who is let in under load, in what order, and what the others are told.
#include "router/test_dispatcher.h"

#include "tests/doctest.h"

namespace baton {
namespace {

RouteConfig limited(int64_t ttft_max_ms) {
  RouteConfig route = test_route();
  route.ttft_max_ms = ttft_max_ms;
  return route;
}

// P computes 1000 tokens/s, alone or with a queue.
WorkerStatus p_status(int64_t queued_tokens, int64_t steps_done = 0) {
  return {.waiting = queued_tokens > 0 ? 1 : 0,
          .queued_tokens = queued_tokens,
          .prefill_tokens_per_s = 1000,
          .steps_done = steps_done,
          .queue_tokens_per_s = 1000};
}

Admission admit(const DispatcherRig& rig, int32_t prompt_len, int32_t priority = 0,
                int64_t late_us = 0) {
  GenerationRequest request = DispatcherRig::request_of(prompt_len);
  request.spec.priority = priority;
  return rig.dispatcher.admit_in_time(request, rig.clock.now_us() - late_us);
}

TEST_CASE(
    "a request is refused when its first token would come too late, and told when to return") {
  DispatcherRig rig(limited(2000));
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(1000));
  CHECK(admit(rig, 900).status.ok());  // 1.0 s wait + 0.9 s
  const Admission refused = admit(rig, 1100);
  CHECK(refused.status.code() == Code::kResourceExhausted);
  CHECK(refused.status.message().find("route.ttft_max_ms") != std::string::npos);
  CHECK(refused.retry_after_s == 1);
  CHECK(rig.metric("baton_requests_rejected_total{engine=\"0\",model_name=\"m\",reason=\"ttft\"") ==
        1);

  rig.dispatcher.on_message(kP, p_status(9000));
  CHECK(admit(rig, 500).retry_after_s == 8);  // 9.0 s, of which 1.5 s are allowed
  rig.dispatcher.on_message(kP, p_status(1'000'000));
  CHECK(admit(rig, 500).retry_after_s == 60);
  rig.dispatcher.on_message(kP, p_status(0));
  CHECK(admit(rig, 500).status.ok());  // the load is gone: it recovers by itself
}

TEST_CASE("what a text thread took counts as waiting") {
  DispatcherRig rig(limited(2000));
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(1000));
  CHECK(admit(rig, 500, 0, 400'000).status.ok());
  CHECK_FALSE(admit(rig, 500, 0, 600'000).status.ok());
}

TEST_CASE("a prompt that takes longer than the limit by itself is let in while nothing waits") {
  DispatcherRig rig(limited(2000));
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(0));
  CHECK(admit(rig, 5000).status.ok());
  rig.dispatcher.on_message(kP, p_status(300));
  CHECK_FALSE(admit(rig, 5000).status.ok());
}

TEST_CASE("without a limit, or before a worker has told its rate, everybody is let in") {
  DispatcherRig unlimited;
  unlimited.up_all();
  unlimited.dispatcher.on_message(kP, p_status(1'000'000));
  CHECK(admit(unlimited, 100'000).status.ok());
  DispatcherRig rig(limited(1));
  CHECK(admit(rig, 100'000).status.ok());
  rig.up_all();
  rig.dispatcher.on_message(kP, WorkerStatus{.queued_tokens = 1'000'000});
  CHECK(admit(rig, 100'000).status.ok());
}

TEST_CASE("requests placed since the last STATUS count, until a STATUS counts them") {
  DispatcherRig rig(limited(2000));
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(0));
  for (int i = 0; i < 3; ++i) rig.submit(600);
  CHECK_FALSE(admit(rig, 500).status.ok());
  rig.dispatcher.on_message(kP, p_status(600));  // two are done, their tokens are on the way
  CHECK(admit(rig, 500).status.ok());
}

TEST_CASE("the queue of other routers counts: STATUS covers all") {
  DispatcherRig rig(limited(2000));
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(5000));  // nothing of it is ours
  CHECK(rig.dispatcher.active() == 0);
  CHECK_FALSE(admit(rig, 100).status.ok());
}

TEST_CASE("a request does not wait for ours of a lower priority") {
  DispatcherRig rig(limited(2000));
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(0));
  for (int i = 0; i < 4; ++i) rig.submit(600);
  CHECK_FALSE(admit(rig, 100, 0).status.ok());
  CHECK(admit(rig, 100, -1).status.ok());
  CHECK_FALSE(admit(rig, 100, 1).status.ok());
}

TEST_CASE("of two prefill workers the one that is done first decides") {
  DispatcherRig rig(limited(2000));
  rig.up_all();
  rig.up(7, Role::kPrefill, "p2");
  rig.dispatcher.on_message(kP, p_status(10'000));
  rig.dispatcher.on_message(7, p_status(0));
  CHECK(admit(rig, 500).status.ok());
}

TEST_CASE("a full queue is refused with the time in which it has room again") {
  RouteConfig route = test_route();
  route.queue_max = 4;
  DispatcherRig rig(route);
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(0));
  for (int i = 0; i < 4; ++i) rig.submit(10'000);
  CHECK(rig.dispatcher.admit(1).status.code() == Code::kResourceExhausted);
  CHECK(rig.dispatcher.admit(1).retry_after_s ==
        10);  // 40 s of work, a quarter of it for one place
  CHECK(rig.dispatcher.admit(2).retry_after_s == 20);
  CHECK(rig.metric("baton_requests_rejected_total{engine=\"0\",model_name=\"m\",reason=\"queue_full"
                   "\"") == 3);
}

TEST_CASE("the error of the prediction is measured") {
  DispatcherRig rig;
  rig.up_all();
  rig.dispatcher.on_message(kP, p_status(1000));
  rig.submit(500);
  const AttemptId id = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.clock.advance_us(1'800'000);  // 1.5 s were predicted
  rig.token(kP, id, 500, 50);
  const std::string series = "baton_ttft_prediction_error_seconds_";
  CHECK(rig.metric(series + "count") == 1);
  CHECK(rig.metric(series + "sum") == doctest::Approx(0.3).epsilon(0.01));
}

// Sequence of the requests that a worker coming up gets.
std::vector<int64_t> order_of(const std::vector<Open>& opens) {
  std::vector<int64_t> order;
  for (const Open& open : opens) order.push_back(static_cast<int64_t>(open.id.id.sequence));
  return order;
}

TEST_CASE("lower priorities go first, equal ones by age") {
  DispatcherRig rig;
  for (const int32_t priority : {0, 5, -1, 0, -1}) rig.submit_with_priority(priority);
  rig.up(kD1, Role::kDecode, "d1");
  CHECK(order_of(rig.outbox.take<Open>(kD1)) == std::vector<int64_t>{3, 5, 1, 4, 2});
}

TEST_CASE("nobody starves: a step of priority is worth so much waiting and no more") {
  DispatcherRig rig;
  rig.submit_with_priority(1);
  rig.wait_ms(rig.config.priority_wait_ms - 1);
  rig.submit_with_priority(0);  // came just early enough to go before it
  rig.wait_ms(2);
  rig.submit_with_priority(0);  // too late for that
  rig.up(kD1, Role::kDecode, "d1");
  CHECK(order_of(rig.outbox.take<Open>(kD1)) == std::vector<int64_t>{2, 1, 3});
}

TEST_CASE("two routers with one worker: each sees the other's queue and keeps its own requests") {
  DispatcherRig first(limited(2000)), second(limited(2000));
  first.up_all();
  second.up_all();
  for (int i = 0; i < 3; ++i) first.submit(1000);
  const std::vector<Prefill> sent = first.outbox.take<Prefill>(kP);
  // P tells both of what it has, as it does.
  for (DispatcherRig* rig : {&first, &second}) rig->dispatcher.on_message(kP, p_status(3000, 1));
  CHECK_FALSE(admit(second, 500).status.ok());
  CHECK_FALSE(admit(first, 500).status.ok());
  for (const Prefill& prefill : sent) {
    first.token(kP, prefill.id, 1000, 50, 0, FinishReason::kStop);
  }
  for (DispatcherRig* rig : {&first, &second}) rig->dispatcher.on_message(kP, p_status(0, 2));
  CHECK(admit(second, 500).status.ok());
  CHECK(admit(first, 500).status.ok());
  CHECK(first.dispatcher.active() == 0);
}

}  // namespace
}  // namespace baton
