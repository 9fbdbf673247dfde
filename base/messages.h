// What crosses threads and processes: plain values, moved, never shared. The meaning of each
// message is docs/protocol.md. The second file to read after the README's picture.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace baton {

using TokenId = int32_t;

// Made once at process start, at random: tells a process from the one that ran before it under the
// same name.
using Epoch = uint64_t;

struct RequestId {
  Epoch router_epoch = 0;
  uint64_t sequence = 0;
  auto operator<=>(const RequestId&) const = default;
};

// One try of a request. A replay is a new attempt; events and handoffs of an old one are stale.
struct AttemptId {
  RequestId id;
  uint32_t attempt = 0;
  auto operator<=>(const AttemptId&) const = default;
};

std::string to_string(const AttemptId& id);  // "5f3a-17/2" for logs

// How tokens are chosen and when a choice ends, with nothing left to default: the router fills in
// the model's generation config and a seed. (spec, tokens) determines all of a choice's state.
struct SamplingSpec {
  uint64_t seed = 0;
  int32_t n = 1;  // choices in this request
  int32_t first_choice =
      0;  // number of the first one: a replay of choice 3 alone has n = 1, first_choice = 3
  int32_t max_tokens = 16;   // generated tokens per choice, counted from prompt_len
  int32_t min_tokens = 0;    // until then EOS and stop ids cannot be drawn
  float temperature = 1.0F;  // 0 = greedy
  int32_t top_k = 0;         // 0 = off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float presence_penalty = 0.0F;    // over generated tokens
  float frequency_penalty = 0.0F;   // over generated tokens
  float repetition_penalty = 1.0F;  // over prompt and generated tokens
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;       // empty = all
  std::vector<std::vector<TokenId>> bad_words;  // sequences that must not be completed
  bool ignore_eos = false;
  std::vector<TokenId> eos_ids;   // end a choice, unless ignore_eos
  std::vector<TokenId> stop_ids;  // end a choice; reported as stop_reason
  int32_t logprobs = -1;          // -1 none; k >= 0: the sampled token's and the k likeliest
  int32_t prompt_logprobs = -1;   // likewise for the prompt's tokens
  int32_t priority = 0;           // lower first
  int64_t deadline_ms = 0;        // time left when sent; 0 = none
  std::string cache_salt;         // enters the first block's hash
  bool operator==(const SamplingSpec&) const = default;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAbort, kError };

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};

// One sampled token. Its name is (id, attempt, choice, position); position is absolute in the
// sequence.
struct TokenEvent {
  AttemptId id;
  int32_t choice = 0;
  int32_t position = 0;
  TokenId token = 0;
  FinishReason finish = FinishReason::kNone;
  std::optional<TokenId> stop_id;  // set when a stop id (not EOS) ended the choice
  float logprob = 0;               // valid if the spec asked for logprobs
  std::vector<TokenLogprob> top;   // likeliest first
  bool operator==(const TokenEvent&) const = default;
};

// ---- router -> workers ----

// Token lists longer than a frame are carried by TOKENS messages that follow; `tokens` then is the
// first piece and `token_count` the whole length. Handlers see the message only when it is whole
// (the connection reassembles).
struct Open {
  AttemptId id;
  SamplingSpec spec;
  int32_t prompt_len = 0;
  std::vector<TokenId> tokens;  // prompt, or prompt + accepted tokens on a replay
  bool local = false;           // prefill it yourself
  bool operator==(const Open&) const = default;
};

struct Prefill {
  AttemptId id;
  SamplingSpec spec;
  int32_t prompt_len = 0;
  std::vector<TokenId> tokens;
  std::vector<std::string> candidates;  // worker ids of the Ds that got OPEN, best first; empty:
                                        // max_tokens = 1 or prompt scoring, no handoff
  bool operator==(const Prefill&) const = default;
};

struct Cancel {
  AttemptId id;
  int32_t choice = -1;  // -1 = all
  bool operator==(const Cancel&) const = default;
};

struct Close {  // to a D that is not the one placed
  AttemptId id;
  bool operator==(const Close&) const = default;
};

// ---- prefill <-> decode ----

struct Reserve {
  AttemptId id;
  int32_t cached_tokens = 0;  // of the prompt, in P's own prefix cache: what P would not compute
  std::vector<int32_t> pages_per_group;  // for the whole prompt; D subtracts its own cached prefix
  bool operator==(const Reserve&) const = default;
};

struct GrantGroup {
  int32_t first_token =
      0;  // the first page below holds positions first_token, first_token + 1, ...
  std::vector<int32_t> page_ids;  // at D
  bool operator==(const GrantGroup&) const = default;
};

struct Grant {
  AttemptId id;
  uint64_t slot_gen = 0;  // numbers D's grants; unique for D's epoch
  int32_t cached_tokens =
      0;  // a whole number of pages of D's largest group: P pushes positions from here on
  std::vector<GrantGroup> groups;
  bool operator==(const Grant&) const = default;
};

struct Refuse {  // FULL, LOCAL or GONE in answer to RESERVE
  enum class Kind : uint8_t { kFull, kLocal, kGone };
  AttemptId id;
  Kind kind = Kind::kFull;
  int32_t retry_after_ms = 0;
  bool operator==(const Refuse&) const = default;
};

// XXH3-128 over what the granted pages hold (kvtransfer/page_hasher.h).
struct PagesDigest {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const PagesDigest&) const = default;
};

struct Commit {
  AttemptId id;
  uint64_t slot_gen = 0;
  int32_t token_count = 0;               // positions whose KV is in the pages (the prompt's length)
  std::optional<PagesDigest> digest;     // D compares it before it decodes (kvtransfer.digest)
  std::vector<TokenEvent> first_tokens;  // one a choice
  bool operator==(const Commit&) const = default;
};

struct Ack {
  uint64_t slot_gen = 0;
  bool accepted = true;  // false = NAK: the grant had been given up; its pages are free now
  bool operator==(const Ack&) const = default;
};

struct Release {  // D -> P: stop writing to this grant
  uint64_t slot_gen = 0;
  bool operator==(const Release&) const = default;
};

struct Drained {  // P -> D: my last copy into it has ended and none will start
  uint64_t slot_gen = 0;
  bool operator==(const Drained&) const = default;
};

struct DrainedAll {  // P -> D: the same for every grant of earlier connections
  bool operator==(const DrainedAll&) const = default;
};

// D -> P after connect, P -> D in answer: what a transport needs to reach the pool (see
// kvtransfer/transport.h).
struct Attach {
  std::string transport;  // "mapped", "ucx", "tcp", "loopback"
  std::string blob;       // opaque outside the transport
  bool reply = false;
  bool operator==(const Attach&) const = default;
};

// ---- workers -> router ----

struct Placed {
  AttemptId id;
  std::string decode_worker;  // empty: P itself keeps it (it is of role both and decodes locally)
  bool local = false;         // D prefills it itself
  bool operator==(const Placed&) const = default;
};

struct Refused {  // every candidate was FULL (or this worker cannot take it now); nothing is held
  AttemptId id;
  int32_t retry_after_ms = 0;
  std::string reason;
  bool operator==(const Refused&) const = default;
};

struct Failed {  // this attempt ended without an answer; the router replays or reports `message`
  AttemptId id;
  bool retryable = true;
  std::string message;
  bool operator==(const Failed&) const = default;
};

struct Events {  // one frame a step
  std::vector<TokenEvent> events;
  bool operator==(const Events&) const = default;
};

struct PromptLogprobs {
  AttemptId id;
  int32_t first_position = 0;
  std::vector<TokenLogprob>
      tokens;  // position p: the prompt's token and its logprob given what is before it
  std::vector<std::vector<TokenLogprob>> top;  // likeliest first
  bool operator==(const PromptLogprobs&) const = default;
};

struct Usage {  // once a request, when its prompt is done: for true usage numbers
  AttemptId id;
  int32_t cached_tokens = 0;  // of the prompt, not computed anywhere for this request
  bool operator==(const Usage&) const = default;
};

struct PageCounts {
  int64_t free = 0, cached = 0, used = 0, granted = 0, quarantined = 0;
  int64_t total = 0;  // always the sum of the above
  bool operator==(const PageCounts&) const = default;
};

struct WorkerStatus {
  int32_t running = 0;            // sequences in the batch
  int32_t waiting = 0;            // admitted or not, not running
  int64_t queued_tokens = 0;      // prompt tokens not yet computed, of all routers
  std::vector<PageCounts> pages;  // per kv_group
  double prefill_tokens_per_s = 0;
  double step_ms = 0;          // a typical decode step
  int64_t largest_prompt = 0;  // prompt at P; prompt + max_tokens at D
  bool draining = false;
  int64_t steps_done = 0;  // since its start: it moves
  // How fast queued_tokens goes down while there are any, waits for pages and peers included; 0:
  // not known.
  double queue_tokens_per_s = 0;
  bool operator==(const WorkerStatus&) const = default;
};

struct Heartbeat {
  int64_t sent_us = 0;    // the sender's clock; echoed in the reply
  int64_t echoed_us = 0;  // 0 in a request
  bool operator==(const Heartbeat&) const = default;
};

struct Draining {  // no new requests to me, please
  bool operator==(const Draining&) const = default;
};

using Message = std::variant<Open, Prefill, Cancel, Close, Reserve, Grant, Refuse, Commit, Ack,
                             Release, Drained, DrainedAll, Attach, Placed, Refused, Failed, Events,
                             PromptLogprobs, Usage, WorkerStatus, Heartbeat, Draining>;

const char* message_name(const Message& message);  // "RESERVE", for logs and metrics

enum class Role : uint8_t { kPrefill, kDecode, kBoth, kRouter };
const char* role_name(Role role);

// What the hello says of a peer. Fixed for the life of a connection.
struct PeerInfo {
  std::string worker_id;  // stable name from the configuration, e.g. "127.0.0.1:7101"
  Epoch epoch = 0;
  Role role = Role::kRouter;
  std::string kv_compat_id;  // digest of config, tensor headers, sampled weights, dtype, layout,
                             // wire version; empty for a router
  std::string model_name;
  int32_t context_len = 0;
  int32_t vocab_size = 0;
  // What is near what, for placement; empty where not known.
  std::string clique;  // NVLink clique: "<cluster uuid>.<clique id>"
  std::string zone;
  bool operator==(const PeerInfo&) const = default;
};

}  // namespace baton

template <>
struct std::hash<baton::RequestId> {
  size_t operator()(const baton::RequestId& id) const {
    return id.router_epoch * 0x9E3779B97F4A7C15ULL ^ id.sequence;
  }
};
template <>
struct std::hash<baton::AttemptId> {
  size_t operator()(const baton::AttemptId& id) const {
    return std::hash<baton::RequestId>()(id.id) * 31 + id.attempt;
  }
};
