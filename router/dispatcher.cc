// Admission, queue, placing, replay and cancel. What workers say is handled in
// dispatcher_events.cc.
#include "router/dispatcher.h"

#include <algorithm>
#include <utility>

#include "base/message_codec.h"

namespace baton {
namespace {

constexpr int64_t kRetryAfterMaxMs = 1000;
constexpr size_t kEnvelopeBytesMax = 64 << 10;  // ids and names of candidates

}  // namespace

Dispatcher::Dispatcher(const RouteConfig& config, Epoch router_epoch, Outbox& outbox,
                       const Clock& clock, Placement& placement, RouterMetrics& metrics)
    : config_(config),
      epoch_(router_epoch),
      outbox_(outbox),
      clock_(clock),
      placement_(placement),
      metrics_(metrics) {}

Status Dispatcher::admit(size_t generations) const {
  const auto queue_max = static_cast<size_t>(config_.queue_max);
  if (waiting_ + generations <= queue_max) return {};
  return Status(Code::kResourceExhausted,
                "the queue is full: " + std::to_string(waiting_) + " requests wait and " +
                    std::to_string(generations) + " more came, want at most " +
                    std::to_string(queue_max) + " (route.queue_max); try again later");
}

Status Dispatcher::sendable(const SamplingSpec& spec, size_t prompt_tokens) {
  const size_t tokens = prompt_tokens + static_cast<size_t>(spec.max_tokens);
  const size_t bytes = kEnvelopeBytesMax + encoded_bytes_max(spec) + tokens * kTokenIdBytesMax;
  if (bytes <= kMessageBytesMax) return {};
  return invalid_argument("request: got " + std::to_string(bytes) +
                          " bytes of tokens and sampling lists, want at most " +
                          std::to_string(kMessageBytesMax) + " in a message to a worker");
}

GenerationId Dispatcher::submit(GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  const GenerationId id = next_generation_++;
  Generation& generation = generations_[id];
  generation.id = id;
  generation.sink = std::move(sink);
  generation.submitted_us = clock_.now_us();
  generation.deadline_us = generation.submitted_us + config_.request_timeout_ms * 1000;
  generation.choices.assign(static_cast<size_t>(request.spec.n),
                            Choice(static_cast<int32_t>(request.prompt.size())));
  generation.request = std::move(request);
  ++waiting_;
  Part& part = add_part(generation, 0, generation.request.spec.n);
  if (!place(part)) enqueue(part, generation.submitted_us);
  return id;
}

void Dispatcher::cancel(GenerationId id) {
  const auto it = generations_.find(id);
  if (it == generations_.end()) return;
  for (const RequestId& part : std::vector<RequestId>(it->second.parts)) {
    stop_attempt(parts_.at(part));
    erase_part(part);
  }
  erase_generation(id);
}

void Dispatcher::fail(GenerationId id, const Status& status) {
  const auto it = generations_.find(id);
  const std::shared_ptr<GenerationSink> sink = it->second.sink;
  const int32_t prompt_index = it->second.request.prompt_index;
  cancel(id);
  sink->on_failed(prompt_index, status);
}

Dispatcher::Part& Dispatcher::add_part(Generation& generation, int32_t first_choice, int32_t n) {
  const RequestId id{epoch_, next_sequence_++};
  Part& part = parts_[id];
  part.id = id;
  part.generation = generation.id;
  part.first_choice = first_choice;
  part.n = n;
  part.queued_until_us = clock_.now_us() + config_.queue_wait_ms * 1000;
  generation.parts.push_back(id);
  return part;
}

Dispatcher::QueueKey Dispatcher::queue_key(const Part& part) const {
  const int32_t priority = generations_.at(part.generation).request.spec.priority;
  return {priority, part.generation, part.id.sequence};
}

void Dispatcher::enqueue(Part& part, int64_t retry_at_us) {
  part.sent = false;
  part.retry_at_us = retry_at_us;
  queue_.insert(queue_key(part));
}

void Dispatcher::erase_part(RequestId id) {
  const auto it = parts_.find(id);
  set_load(it->second, 0, 0, 0);
  queue_.erase(queue_key(it->second));
  std::erase(generations_.at(it->second.generation).parts, id);
  parts_.erase(it);
}

void Dispatcher::erase_generation(GenerationId id) {
  const auto it = generations_.find(id);
  if (it->second.waiting) --waiting_;
  generations_.erase(it);
}

// Several choices in one request share the prompt only.
size_t Dispatcher::accepted_tokens(const Part& part, const Generation& generation) const {
  if (part.n > 1) return 0;
  return generation.choices[static_cast<size_t>(part.first_choice)].accepted.size();
}

std::vector<TokenId> Dispatcher::tokens_of(const Part& part, const Generation& generation) const {
  std::vector<TokenId> tokens = generation.request.prompt;
  if (part.n > 1) return tokens;
  const auto& accepted = generation.choices[static_cast<size_t>(part.first_choice)].accepted;
  tokens.insert(tokens.end(), accepted.begin(), accepted.end());
  return tokens;
}

void Dispatcher::set_load(Part& part, LinkId prefill, int64_t prefill_tokens, LinkId decode) {
  if (part.prefill_loaded != 0) placement_.add_load(part.prefill_loaded, -part.prefill_load, 0);
  if (part.decode_loaded != 0) placement_.add_load(part.decode_loaded, 0, -part.n);
  part.prefill_loaded = prefill;
  part.prefill_load = prefill_tokens;
  part.decode_loaded = decode;
  if (prefill != 0) placement_.add_load(prefill, prefill_tokens, 0);
  if (decode != 0) placement_.add_load(decode, 0, part.n);
}

bool Dispatcher::place(Part& part) {
  Generation& generation = generations_.at(part.generation);
  const SamplingSpec& spec = generation.request.spec;
  const auto generated = static_cast<int64_t>(accepted_tokens(part, generation));
  const bool prefill_only = generation.request.prompt_only || generated + 1 >= spec.max_tokens;
  // Queued requests come here every few milliseconds: their prompts are touched only for a worker.
  if (!placement_.any_usable(generation.kv_compat_id, prefill_only)) return false;
  std::vector<TokenId> tokens = tokens_of(part, generation);
  if (part.chained_tokens != tokens.size()) {
    part.chain = placement_.chain(tokens, spec.cache_salt);
    part.chained_tokens = tokens.size();
  }
  const std::optional<Plan> plan = placement_.choose({
      .tokens = tokens,
      .chain = part.chain,
      .kv_compat_id = generation.kv_compat_id,
      .prefill_only = prefill_only,
  });
  if (!plan) return false;
  queue_.erase(queue_key(part));
  send_attempt(part, generation, *plan, std::move(tokens));
  return true;
}

void Dispatcher::send_attempt(Part& part, Generation& generation, const Plan& plan,
                              std::vector<TokenId> tokens) {
  ++part.attempt;
  part.sent = true;
  part.prefill = plan.prefill.value_or(0);
  part.opened = plan.decode;
  part.decode = 0;
  part.decode_spoke = false;
  part.kv_compat_id = plan.kv_compat_id;
  const LinkId computes = plan.prefill ? *plan.prefill : plan.decode.front();
  set_load(part, computes, static_cast<int64_t>(tokens.size()),
           plan.decode.empty() ? 0 : plan.decode.front());

  const auto prompt_len = static_cast<int32_t>(generation.request.prompt.size());
  SamplingSpec spec = generation.request.spec;
  spec.n = part.n;
  spec.first_choice = part.first_choice;
  spec.deadline_ms = std::max<int64_t>(1, (generation.deadline_us - clock_.now_us()) / 1000);
  if (generation.scored_positions >= prompt_len) spec.prompt_logprobs = -1;
  const AttemptId id{part.id, part.attempt};
  std::vector<std::string> candidates;
  for (const LinkId link : plan.decode) {
    candidates.push_back(placement_.find(link)->peer.worker_id);
    outbox_.send(link, Open{id, spec, prompt_len, tokens, !plan.prefill});
  }
  if (plan.prefill) {
    outbox_.send(*plan.prefill, Prefill{id, std::move(spec), prompt_len, std::move(tokens),
                                        std::move(candidates)});
  }
}

void Dispatcher::settle_on(Part& part, LinkId decode) {
  if (part.decode == decode) return;
  metrics_.placed(
      static_cast<double>(clock_.now_us() - generations_.at(part.generation).submitted_us) * 1e-6,
      part.prefill == 0);
  part.decode = decode;
  for (const LinkId link : part.opened) {
    if (link != decode) outbox_.send(link, Close{{part.id, part.attempt}});
  }
  part.opened.assign(1, decode);
  set_load(part, part.prefill_loaded, part.prefill_load, decode);
  placement_.remember(part.chain, decode);
  if (part.prefill != 0) placement_.remember(part.chain, part.prefill);
}

void Dispatcher::stop_attempt(Part& part) {
  if (!part.sent) return;
  const Cancel cancel{{part.id, part.attempt}};
  if (part.prefill != 0) outbox_.send(part.prefill, cancel);
  for (const LinkId link : part.opened) outbox_.send(link, cancel);
  part.sent = false;
  part.prefill = 0;
  part.opened.clear();
  part.decode = 0;
  set_load(part, 0, 0, 0);
}

namespace {

// The first replay goes out at once. What fails again right away meets a worker that is coming
// back: the attempts must not be spent before it is there.
int64_t recovery_pause_us(int32_t recoveries) {
  return recoveries <= 1 ? 0 : 10'000LL << std::min(recoveries, 6);
}

}  // namespace

void Dispatcher::replay(Part& part, const std::string& reason) {
  stop_attempt(part);
  metrics_.replayed();
  if (++part.recoveries > config_.recovery_attempts_max) {
    fail(part.generation,
         unavailable("the request lost its worker " + std::to_string(part.recoveries) +
                     " times, want at most " + std::to_string(config_.recovery_attempts_max) +
                     " (route.recovery_attempts_max); the last time: " + reason));
    return;
  }
  Generation& generation = generations_.at(part.generation);
  bool untouched = true;
  for (int32_t i = part.first_choice; i < part.first_choice + part.n; ++i) {
    Choice& choice = generation.choices[static_cast<size_t>(i)];
    choice.relay.forget_held();
    untouched = untouched && choice.accepted.empty() && !choice.finished;
  }
  const int64_t now_us = clock_.now_us();
  const int64_t retry_at_us = now_us + recovery_pause_us(part.recoveries);
  if (part.n == 1 || untouched) {
    part.queued_until_us = now_us + config_.queue_wait_ms * 1000;
    if (retry_at_us > now_us || !place(part)) enqueue(part, retry_at_us);
    return;
  }
  // Each choice has its own tokens now, so each goes on as a request of its own.
  const Part old = part;
  erase_part(old.id);
  for (int32_t i = old.first_choice; i < old.first_choice + old.n; ++i) {
    if (generation.choices[static_cast<size_t>(i)].finished) continue;
    Part& single = add_part(generation, i, 1);
    single.recoveries = old.recoveries;
    if (retry_at_us > now_us || !place(single)) enqueue(single, retry_at_us);
  }
}

void Dispatcher::place_queued() {
  if (placement_.workers().empty()) return;
  const int64_t now_us = clock_.now_us();
  for (const QueueKey& key : std::vector<QueueKey>(queue_.begin(), queue_.end())) {
    Part& part = parts_.at({epoch_, std::get<2>(key)});
    if (part.retry_at_us <= now_us) place(part);
  }
}

void Dispatcher::on_timer() {
  const int64_t now_us = clock_.now_us();
  while (!generations_.empty() && generations_.begin()->second.deadline_us <= now_us) {
    fail(generations_.begin()->first,
         Status(Code::kDeadlineExceeded, "the request is not finished after " +
                                             std::to_string(config_.request_timeout_ms) +
                                             " ms (route.request_timeout_ms)"));
  }
  for (const QueueKey& key : std::vector<QueueKey>(queue_.begin(), queue_.end())) {
    const auto it = parts_.find({epoch_, std::get<2>(key)});
    if (it == parts_.end() || it->second.queued_until_us > now_us) continue;  // failed just above
    fail(it->second.generation,
         unavailable(std::string(it->second.refusals > 0 ? "every worker is full"
                                                         : "no worker for this model is up") +
                     ", and the request has waited " + std::to_string(config_.queue_wait_ms) +
                     " ms (route.queue_wait_ms); try again later"));
  }
  place_queued();
}

void Dispatcher::handle(LinkId link, const Refused& refused) {
  Part* part = current(refused.id);
  if (part == nullptr) return;
  metrics_.refused();
  for (const LinkId opened : part->opened) {
    if (opened != link)
      outbox_.send(opened, Cancel{refused.id});  // not CLOSE: it keeps its place there
  }
  set_load(*part, 0, 0, 0);
  ++part->refusals;
  const int64_t wait_ms = std::clamp<int64_t>(refused.retry_after_ms, 1, kRetryAfterMaxMs);
  enqueue(*part, clock_.now_us() + wait_ms * 1000);
}

}  // namespace baton
