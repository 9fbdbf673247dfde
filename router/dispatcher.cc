// Queue, placing, replay and cancel. Admission is in dispatcher_admission.cc, what workers say in
// dispatcher_events.cc.
#include "router/dispatcher.h"

#include <algorithm>
#include <utility>

namespace baton {

Dispatcher::Dispatcher(const RouteConfig& config, Epoch router_epoch, Outbox& outbox,
                       const Clock& clock, Placement& placement, RouterMetrics& metrics)
    : config_(config),
      epoch_(router_epoch),
      outbox_(outbox),
      clock_(clock),
      placement_(placement),
      metrics_(metrics) {}

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

void Dispatcher::fail_overdue(GenerationId id) {
  fail(id, Status(Code::kDeadlineExceeded, "the request is not finished after " +
                                               std::to_string(config_.request_timeout_ms) +
                                               " ms (route.request_timeout_ms)"));
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
  const Generation& generation = generations_.at(part.generation);
  return {queue_order(generation.submitted_us, generation.request.spec.priority), generation.id,
          part.id.sequence};
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
  const int32_t priority = generations_.at(part.generation).request.spec.priority;
  if (part.prefill_loaded != 0) {
    placement_.add_load(part.prefill_loaded, -part.prefill_load, 0, priority);
  }
  if (part.decode_loaded != 0) placement_.add_load(part.decode_loaded, 0, -part.n);
  part.prefill_loaded = prefill;
  part.prefill_load = prefill_tokens;
  part.decode_loaded = decode;
  if (prefill != 0) placement_.add_load(prefill, prefill_tokens, 0, priority);
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
  const PlacementQuery query{
      .tokens = tokens,
      .chain = part.chain,
      .kv_compat_id = generation.kv_compat_id,
      .prefill_only = prefill_only,
      .priority = spec.priority,
      .avoid = part.avoid,
  };
  const std::optional<Plan> plan = placement_.choose(query);
  if (!plan) return false;
  if (part.attempt == 0) {
    const std::optional<TtftForecast> forecast = placement_.forecast(*plan, query);
    if (forecast) {
      generation.first_token_us = clock_.now_us() + static_cast<int64_t>(forecast->total_s() * 1e6);
    }
  }
  queue_.erase(queue_key(part));
  send_attempt(part, generation, *plan, std::move(tokens));
  return true;
}

void Dispatcher::send_attempt(Part& part, Generation& generation, const Plan& plan,
                              std::vector<TokenId> tokens) {
  ++part.attempt;
  part.sent = true;
  part.sent_us = clock_.now_us();
  part.computes = plan.computes();
  part.answered = false;
  part.prefill = plan.prefill.value_or(0);
  part.opened = plan.decode;
  part.decode = 0;
  part.decode_spoke = false;
  part.spoke = 0;
  part.placed_us = part.computed_us = part.prefill_spoke_us = 0;
  part.unscored.clear();
  part.kv_compat_id = plan.kv_compat_id;
  set_load(part, part.computes, static_cast<int64_t>(tokens.size()),
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
  }
  // PREFILL first: what P does with it until it asks a decode worker takes longer than an OPEN.
  if (plan.prefill) {
    outbox_.send(*plan.prefill,
                 Prefill{id, spec, prompt_len, std::move(tokens), std::move(candidates)});
  }
  for (const LinkId link : plan.decode) {
    outbox_.send(link, Open{id, spec, prompt_len, tokens_of(part, generation), !plan.prefill});
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
    fail_overdue(generations_.begin()->first);
  }
  for (const QueueKey& key : std::vector<QueueKey>(queue_.begin(), queue_.end())) {
    const auto it = parts_.find({epoch_, std::get<2>(key)});
    if (it == parts_.end() || it->second.queued_until_us > now_us) continue;  // failed just above
    give_up_queued(it->second);
  }
  move_unanswered();
  place_queued();
}

void Dispatcher::give_up_queued(const Part& part) {
  const std::string& kv_compat_id = generations_.at(part.generation).kv_compat_id;
  const bool full = part.refusals > 0;
  std::string why = full ? "every worker is full" : "no worker for this model is up";
  if (!full && !kv_compat_id.empty()) {
    why = "no worker of kv_compat_id " + kv_compat_id +
          " is left, and no other can go on with what has been sent";
  }
  metrics_.rejected(full ? "workers_full" : "no_worker");
  fail(part.generation,
       unavailable(why + "; the request has waited " + std::to_string(config_.queue_wait_ms) +
                   " ms (route.queue_wait_ms); try again later"));
}

// A worker that has the request and computes nothing, or whose loop does not even send STATUS any
// more. One with a long queue that moves is neither.
bool Dispatcher::is_stuck(const Part& part) const {
  if (!part.sent) return false;
  const auto silent = [this](LinkId link) {
    const Worker* worker = placement_.find(link);
    return worker != nullptr && worker->silent;
  };
  if (part.decode_spoke) return silent(part.decode);
  const Worker* worker = placement_.find(part.computes);
  if (worker == nullptr) return false;
  if (worker->silent || silent(part.decode)) return true;
  const int64_t moved_us = std::max(part.sent_us, worker->moved_us);
  return !part.answered && clock_.now_us() - moved_us > config_.placed_wait_ms * 1000;
}

void Dispatcher::move_unanswered() {
  const int64_t wait_us = config_.placed_wait_ms * 1000;
  const int64_t now_us = clock_.now_us();
  if (now_us < next_answer_check_us_) return;
  next_answer_check_us_ = now_us + wait_us / 16;
  placement_.mark_silent(now_us - wait_us);
  std::vector<RequestId> stuck;
  for (const auto& [id, part] : parts_) {
    if (is_stuck(part)) stuck.push_back(id);
  }
  for (const RequestId& id : stuck) {
    const auto it = parts_.find(id);
    if (it == parts_.end()) continue;  // its generation has failed with another part
    Part& part = it->second;
    part.avoid = part.decode_spoke ? part.decode : part.computes;
    metrics_.unanswered();
    replay(part, "worker " + placement_.find(part.avoid)->peer.worker_id + " has not moved for " +
                     std::to_string(config_.placed_wait_ms) + " ms (route.placed_wait_ms)");
  }
}

void Dispatcher::handle(LinkId link, const Refused& refused) {
  Part* part = current(refused.id);
  if (part == nullptr) return;
  metrics_.refused();
  placement_.note_refusal(link, refused.reason, clock_.now_us());
  for (const LinkId opened : part->opened) {
    if (opened != link)
      outbox_.send(opened, Cancel{refused.id});  // not CLOSE: it keeps its place there
  }
  set_load(*part, 0, 0, 0);
  ++part->refusals;
  const int64_t wait_ms = std::clamp<int64_t>(refused.retry_after_ms, 1, config_.retry_wait_max_ms);
  enqueue(*part, clock_.now_us() + wait_ms * 1000);
}

}  // namespace baton
