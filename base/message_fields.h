// The fields of each message in the order of the wire, once, for the writer and the reader of
// message_codec.cc. Only ever append to a list; see the rule of versions there.
#pragma once

#include <concepts>
#include <tuple>
#include <type_traits>

#include "base/messages.h"

namespace baton {

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

auto fields(Is<AttemptId> auto& m) {
  return std::tie(m.id.router_epoch, m.id.sequence, m.attempt);
}

auto fields(Is<SamplingSpec> auto& m) {
  return std::tie(m.seed, m.n, m.first_choice, m.max_tokens, m.min_tokens, m.temperature, m.top_k,
                  m.top_p, m.min_p, m.presence_penalty, m.frequency_penalty, m.repetition_penalty,
                  m.logit_bias, m.allowed_token_ids, m.bad_words, m.ignore_eos, m.eos_ids,
                  m.stop_ids, m.logprobs, m.prompt_logprobs, m.priority, m.deadline_ms,
                  m.cache_salt);
}

auto fields(Is<Open> auto& m) {
  return std::tie(m.id, m.spec, m.prompt_len, m.tokens, m.local);
}
auto fields(Is<Prefill> auto& m) {
  return std::tie(m.id, m.spec, m.prompt_len, m.tokens, m.candidates);
}
auto fields(Is<Cancel> auto& m) {
  return std::tie(m.id, m.choice);
}
auto fields(Is<Close> auto& m) {
  return std::tie(m.id);
}

auto fields(Is<Reserve> auto& m) {
  return std::tie(m.id, m.cached_tokens, m.pages_per_group);
}
auto fields(Is<GrantGroup> auto& m) {
  return std::tie(m.first_token, m.page_ids);
}
auto fields(Is<Grant> auto& m) {
  return std::tie(m.id, m.slot_gen, m.cached_tokens, m.groups);
}
auto fields(Is<Refuse> auto& m) {
  return std::tie(m.id, m.kind, m.retry_after_ms);
}
auto fields(Is<PagesDigest> auto& m) {
  return std::tie(m.low, m.high);
}
auto fields(Is<Commit> auto& m) {
  return std::tie(m.id, m.slot_gen, m.token_count, m.digest, m.first_tokens);
}
auto fields(Is<Ack> auto& m) {
  return std::tie(m.slot_gen, m.accepted);
}
auto fields(Is<Release> auto& m) {
  return std::tie(m.slot_gen);
}
auto fields(Is<Drained> auto& m) {
  return std::tie(m.slot_gen);
}
auto fields(Is<DrainedAll> auto&) {
  return std::tuple<>();
}
auto fields(Is<Attach> auto& m) {
  return std::tie(m.transport, m.blob, m.reply);
}

auto fields(Is<Placed> auto& m) {
  return std::tie(m.id, m.decode_worker, m.local);
}
auto fields(Is<Refused> auto& m) {
  return std::tie(m.id, m.retry_after_ms, m.reason);
}
auto fields(Is<Failed> auto& m) {
  return std::tie(m.id, m.retryable, m.message);
}
auto fields(Is<Events> auto& m) {
  return std::tie(m.events);
}
auto fields(Is<PromptLogprobs> auto& m) {
  return std::tie(m.id, m.first_position, m.tokens, m.top);
}
auto fields(Is<Usage> auto& m) {
  return std::tie(m.id, m.cached_tokens);
}

auto fields(Is<PageCounts> auto& m) {
  return std::tie(m.free, m.cached, m.used, m.granted, m.quarantined, m.total);
}
auto fields(Is<WorkerStatus> auto& m) {
  return std::tie(m.running, m.waiting, m.queued_tokens, m.pages, m.prefill_tokens_per_s, m.step_ms,
                  m.largest_prompt, m.draining, m.steps_done, m.queue_tokens_per_s);
}
auto fields(Is<Heartbeat> auto& m) {
  return std::tie(m.sent_us, m.echoed_us);
}
auto fields(Is<Draining> auto&) {
  return std::tuple<>();
}

// The last value of an enumeration: a reader refuses what lies beyond.
template <typename E>
inline constexpr E kLastValue = E{};
template <>
inline constexpr auto kLastValue<FinishReason> = FinishReason::kError;
template <>
inline constexpr auto kLastValue<Refuse::Kind> = Refuse::Kind::kGone;

}  // namespace baton
