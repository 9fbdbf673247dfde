// Which workers there are, how busy they are, and which of them a request should go to. Knows
// nothing of requests in progress but their load. Called by the dispatcher; router loop thread
// only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/link.h"
#include "base/messages.h"
#include "base/status.h"
#include "config/config.h"
#include "router/address_hint.h"
#include "router/locality.h"
#include "router/prefix_history.h"

namespace baton {

struct Worker {
  LinkId link = 0;
  PeerInfo peer;
  std::string address;   // as dialled; empty: it has dialled us
  std::string withheld;  // not empty: discovery says that it gets nothing new, and why
  WorkerStatus status;
  WorkerNumber number = 0;  // of this process: changes with its epoch
  bool draining = false;
  bool silent = false;                 // has sent no STATUS for long: its loop does not turn
  std::map<int32_t, int64_t> prompts;  // tokens of ours not computed yet, by priority
  int64_t prefill_tokens = 0;          // their sum
  int64_t placed_tokens = 0;           // sent since its last STATUS, which knows of all before
  int32_t choices = 0;                 // of ours that decode there or are about to
  int64_t heard_us = 0;                // last STATUS; 0: none so far
  int64_t moved_us = 0;                // last STATUS that showed work done while more waited
  int64_t refusals = 0;                // requests that it would not take
  std::string refusal;                 // why, the last time
  int64_t refused_us = 0;              // and when

  bool prefills() const { return peer.role == Role::kPrefill || peer.role == Role::kBoth; }
  bool decodes() const { return peer.role == Role::kDecode || peer.role == Role::kBoth; }
  // Prompt tokens of all routers that it has not computed.
  int64_t queued_tokens() const {
    return status.queued_tokens + std::min(placed_tokens, prefill_tokens);
  }
};

struct PlacementQuery {
  const std::vector<TokenId>& tokens;  // to be prefilled
  const std::vector<uint64_t>& chain;  // PrefixHistory::chain of them
  std::string_view kv_compat_id;       // only workers of this model build; empty = any
  bool prefill_only = false;           // ends with P's first token: no decode worker is needed
  int32_t priority = 0;
  LinkId avoid = 0;  // has let this request down: only if there is nobody else
};

struct Plan {
  std::optional<LinkId> prefill;  // none: the decode worker computes the prompt itself
  std::vector<LinkId> decode;     // candidates, best first; empty: prefill only
  std::string kv_compat_id;       // of all of them

  LinkId computes() const { return prefill ? *prefill : decode.front(); }  // the prompt
};

// When the first token would come, from now. P sends it itself, so the handoff is no part of it.
struct TtftForecast {
  double wait_s = 0;  // for what is queued before it
  double own_s = 0;   // the step under way and its own uncached tokens

  double total_s() const { return wait_s + own_s; }
};

class Placement {
 public:
  Placement(const RouteConfig& config, uint64_t hash_key);

  void add(LinkId link, const PeerInfo& peer, const std::string& address = "");
  void remove(LinkId link);
  // What discovery says of an address, whether its worker is up or will be.
  void set_hint(const std::string& address, const AddressHint& hint);
  void update(LinkId link, const WorkerStatus& status, int64_t now_us);
  void set_draining(LinkId link);
  void note_refusal(LinkId link, const std::string& reason, int64_t now_us);
  // Workers whose last STATUS is older get no requests until the next one. Those that have sent
  // none are new.
  void mark_silent(int64_t heard_before_us);

  // Whether choose() would find a plan for such a query, whatever its tokens are.
  bool any_usable(std::string_view kv_compat_id, bool prefill_only) const;
  // Nothing when no worker (of that kv_compat_id) can take it now.
  std::optional<Plan> choose(const PlacementQuery& query) const;
  // What a request adds to a worker, or with negative numbers takes off it again. Unknown links are
  // ignored: they are gone.
  void add_load(LinkId link, int64_t prefill_tokens, int32_t choices, int32_t priority = 0);

  // placement_forecast.cc: for a plan of choose(). Covers the requests of all routers, as far as
  // workers have told. Nothing while the worker's rates are not known.
  std::optional<TtftForecast> forecast(const Plan& plan, const PlacementQuery& query) const;
  // Until all that is queued now is computed, at the worker that is done first; likewise.
  std::optional<double> queue_wait_s() const;
  // How long `tokens` that no worker has yet take all of them together; likewise.
  std::optional<double> fleet_time_s(int64_t tokens) const;

  std::vector<uint64_t> chain(const std::vector<TokenId>& tokens,
                              std::string_view cache_salt) const {
    return history_.chain(tokens, cache_salt);
  }
  void remember(const std::vector<uint64_t>& chain, LinkId link);

  // Empty: it may get requests. Else why not.
  static std::string unusable_reason(const Worker& worker);
  // Whether pages may go from the one to the other: of one build, and of one zone where that is
  // required.
  bool mates(const Worker& prefill, const Worker& decode) const;

  const Worker* find(LinkId link) const;
  const std::map<LinkId, Worker>& workers() const { return workers_; }
  // Somebody could take a request now.
  bool ready() const;
  // OK, or INVALID_ARGUMENT when every worker that states a limit is too small for a request of
  // this size.
  Status fits(int64_t prompt_tokens, int64_t total_tokens) const;
  // Prompt and output together, of the roomiest decode worker; 0 = one has not told yet.
  int64_t largest_total() const;

 private:
  std::vector<const Worker*> prefill_by_cost(const PlacementQuery& query) const;
  std::optional<Plan> remote_plan(const PlacementQuery& query, const Worker& first) const;
  std::vector<const Worker*> mates_by_cost(const Worker& prefill,
                                           const PlacementQuery& query) const;
  double nearest_mate_tokens(const Worker& prefill) const;
  // Of any kv_compat_id, if that is empty.
  bool has_dedicated_prefill(std::string_view kv_compat_id) const;
  std::vector<const Worker*> decode_by_cost(const PlacementQuery& query) const;
  double prefill_cost(const Worker& worker, const PlacementQuery& query) const;
  double decode_cost(const Worker& worker, const PlacementQuery& query) const;
  static bool usable(const Worker& worker, std::string_view kv_compat_id);
  void apply_hint(Worker& worker) const;

  const RouteConfig config_;
  const ZonePolicy zone_policy_;
  PrefixHistory history_;
  std::map<LinkId, Worker> workers_;
  std::map<std::string, AddressHint> hints_;  // by address
  std::map<std::pair<std::string, Epoch>, WorkerNumber> numbers_;
  WorkerNumber next_number_ = 1;
};

}  // namespace baton
