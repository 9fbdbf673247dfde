// Who is let in: bounds of the queue, of messages, and of the predicted time to the first token.
#include <algorithm>
#include <cmath>

#include "base/message_codec.h"
#include "router/dispatcher.h"

namespace baton {
namespace {

constexpr size_t kEnvelopeBytesMax = 64 << 10;  // ids and names of candidates
constexpr int64_t kRetryAfterMaxS = 60;         // forecasts do not reach further
// A wait of this share of the limit is always allowed, or a prompt that alone takes longer than the
// limit would never be let in.
constexpr double kWaitShare = 0.1;

int64_t whole_seconds(double seconds) {
  return std::clamp<int64_t>(std::llround(std::ceil(seconds)), 1, kRetryAfterMaxS);
}

std::string in_ms(double seconds) {
  return std::to_string(std::llround(seconds * 1000)) + " ms";
}

}  // namespace

Status Dispatcher::sendable(const SamplingSpec& spec, size_t prompt_tokens) {
  const size_t tokens = prompt_tokens + static_cast<size_t>(spec.max_tokens);
  const size_t bytes = kEnvelopeBytesMax + encoded_bytes_max(spec) + tokens * kTokenIdBytesMax;
  if (bytes <= kMessageBytesMax) return {};
  return invalid_argument("request: got " + std::to_string(bytes) +
                          " bytes of tokens and sampling lists, want at most " +
                          std::to_string(kMessageBytesMax) + " in a message to a worker");
}

Admission Dispatcher::admit(size_t generations) const {
  const auto queue_max = static_cast<size_t>(config_.queue_max);
  if (waiting_ + generations <= queue_max) return {};
  metrics_.rejected("queue_full");
  // Those that wait leave one after the other until the last one's turn comes.
  const auto too_many = static_cast<double>(waiting_ + generations - queue_max);
  const double share = std::min(1.0, too_many / static_cast<double>(std::max<size_t>(waiting_, 1)));
  return {Status(Code::kResourceExhausted,
                 "the queue is full: " + std::to_string(waiting_) + " requests wait and " +
                     std::to_string(generations) + " more came, want at most " +
                     std::to_string(queue_max) + " (route.queue_max); try again later"),
          whole_seconds(share * wait_s())};
}

Admission Dispatcher::admit_in_time(const GenerationRequest& request, int64_t received_us) const {
  if (config_.ttft_max_ms == 0) return {};
  const std::optional<TtftForecast> forecast = this->forecast(request);
  if (!forecast) return {};
  const double limit_s = static_cast<double>(config_.ttft_max_ms) * 1e-3;
  const double since_s = static_cast<double>(clock_.now_us() - received_us) * 1e-6;
  const double wait_s = since_s + forecast->wait_s;
  const double allowed_s = std::max(limit_s - forecast->own_s, limit_s * kWaitShare);
  if (wait_s <= allowed_s) return {};
  metrics_.rejected("ttft");
  return {
      Status(Code::kResourceExhausted,
             "overloaded: the first token is expected after " + in_ms(wait_s + forecast->own_s) +
                 ", " + in_ms(wait_s) + " of which the request would wait; want at most " +
                 in_ms(limit_s) + " (route.ttft_max_ms); try again later"),
      whole_seconds(wait_s - allowed_s)};
}

int64_t Dispatcher::retry_after_s() const {
  return whole_seconds(wait_s());
}

// Until all that waits now is computed; 0 while nothing is known of that.
double Dispatcher::wait_s() const {
  return placement_.queue_wait_s().value_or(0) +
         placement_.fleet_time_s(unplaced_tokens(INT64_MAX)).value_or(0);
}

std::optional<TtftForecast> Dispatcher::forecast(const GenerationRequest& request) const {
  const SamplingSpec& spec = request.spec;
  const std::vector<uint64_t> chain = placement_.chain(request.prompt, spec.cache_salt);
  const PlacementQuery query{.tokens = request.prompt,
                             .chain = chain,
                             .kv_compat_id = "",
                             .prefill_only = request.prompt_only || spec.max_tokens <= 1,
                             .priority = spec.priority};
  const std::optional<Plan> plan = placement_.choose(query);
  if (!plan) return std::nullopt;  // it may wait for a worker (route.queue_wait_ms)
  std::optional<TtftForecast> forecast = placement_.forecast(*plan, query);
  if (forecast) {
    const int64_t before = unplaced_tokens(queue_order(clock_.now_us(), spec.priority));
    forecast->wait_s += placement_.fleet_time_s(before).value_or(0);
  }
  return forecast;
}

int64_t Dispatcher::queue_order(int64_t submitted_us, int32_t priority) const {
  return submitted_us + priority * config_.priority_wait_ms * 1000;
}

// Of those in the router's own queue that come before `order_max`.
int64_t Dispatcher::unplaced_tokens(int64_t order_max) const {
  int64_t tokens = 0;
  for (const QueueKey& key : queue_) {
    if (std::get<0>(key) > order_max) break;
    const Generation& generation = generations_.at(std::get<1>(key));
    tokens += std::ssize(generation.request.prompt);
  }
  return tokens;
}

}  // namespace baton
