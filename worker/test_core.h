// For the worker's unit tests: one WorkerCore with everything around it in the test's hands. The
// engine runs a step, the mover says that a copy has ended, a peer sends a message when the test
// says so; what the core sends is kept.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "scheduler/fake_engine.h"
#include "scheduler/test_fixture.h"
#include "worker/core.h"

namespace baton {

inline constexpr LinkId kRouter = 1, kOtherRouter = 2;  // links; the routers' epochs are the same
inline constexpr LinkId kDecode = 10;                   // a D that we have dialled: we are P
inline constexpr LinkId kPrefill = 20;                  // a P that has dialled us: we are D

class KeptOutbox final : public Outbox {
 public:
  void send(LinkId link, Message message) override { sent_.emplace_back(link, std::move(message)); }
  void close(LinkId link, const std::string&) override { closed.push_back(link); }
  void connect(const std::string&) override {}
  void disconnect(const std::string&) override {}

  // All messages of one kind that have gone to this link since the last call.
  template <typename T>
  std::vector<T> take(LinkId link) {
    std::vector<T> taken;
    std::erase_if(sent_, [&](auto& entry) {
      T* message = entry.first == link ? std::get_if<T>(&entry.second) : nullptr;
      if (message != nullptr) taken.push_back(std::move(*message));
      return message != nullptr;
    });
    return taken;
  }
  std::vector<LinkId> closed;

 private:
  std::vector<std::pair<LinkId, Message>> sent_;
};

// Moves nothing and says nothing by itself.
class SilentMover final : public PageMover {
 public:
  std::string offer(LinkId) override { return "offer"; }
  void allow(LinkId, uint64_t, const std::vector<std::vector<int32_t>>&) override {}
  void disallow(uint64_t) override {}
  void verify(uint64_t, const std::vector<std::vector<int32_t>>&, const PagesDigest&) override {}
  bool stores_ourselves(const std::string&) const override { return false; }
  void forget(LinkId) override {}
  void attach(LinkId, const std::string&, Lease) override {}
  void detach(LinkId) override {}
  void begin(TransferId transfer, LinkId, uint64_t) override { begun.push_back(transfer); }
  void push(const std::vector<PushPage>&) override {}
  void finish(TransferId transfer, uint64_t) override { finished.push_back(transfer); }
  void abort(TransferId transfer) override { aborted.push_back(transfer); }
  void layer_written(const StepInput&, int32_t) override {}

  std::vector<TransferId> begun, finished, aborted;
};

class KeptSteps final : public StepRunner {
 public:
  void submit(StepInput input) override { steps.push_back(std::move(input)); }
  std::deque<StepInput> steps;
};

inline WorkerConfig core_config() {
  WorkerConfig config;
  config.scheduler = test_config();
  config.decode.local_prefill_tokens = 0;
  config.decode.local_prefill_ratio = 0;
  config.decode.headroom_pages = 0;
  config.prefill.reserve_ahead = 1;
  config.drain_timeout_ms = 10'000;
  config.drain_hand_back_ms = 4'000;
  return config;
}

struct TestCore {
  explicit TestCore(int32_t pages = 64, const WorkerConfig& worker_config = core_config(),
                    HandoffWatch* watch = nullptr)
      : config(worker_config),
        layout{{test_group()}},
        ledger({pages}),
        cache(layout, ledger, 5, config.scheduler.prefix_cache),
        engine(layout, {pages}, 4096),
        scheduler(config.scheduler, layout, 4096, ledger, cache, clock),
        core(config, self(),
             {layout, ledger, cache, scheduler, mover, outbox, steps, clock, watch}) {
    ledger.set_eviction_listener(&cache);
    for (const LinkId link : {kRouter, kOtherRouter}) {
      core.handle(LinkEvent(LinkUp{link, {.epoch = link, .role = Role::kRouter}, ""}));
    }
    core.handle(LinkEvent(LinkUp{kDecode, peer("d", Role::kDecode), "d"}));
    receive(kDecode, Attach{.transport = "", .blob = "offer", .reply = false});
    core.handle(MoverEvent{.kind = MoverEvent::Kind::kAttached, .link = kDecode});
    core.handle(LinkEvent(LinkUp{kPrefill, peer("p", Role::kPrefill), ""}));
  }

  static PeerInfo peer(const std::string& name, Role role) {
    return {.worker_id = name, .epoch = 9, .role = role, .kv_compat_id = "kv"};
  }
  static PeerInfo self() {
    return {.worker_id = "self",
            .epoch = 8,
            .role = Role::kBoth,
            .kv_compat_id = "kv",
            .context_len = 4096,
            .vocab_size = 1'000'000};
  }

  // ---- what happens around the core; each is followed by what the loop does then ----
  void receive(LinkId link, Message message) {
    core.handle(LinkEvent(LinkMessage{link, std::move(message)}));
    core.prepare_steps();
  }
  // The oldest step that was given out is computed. False: there is none.
  bool step() {
    if (steps.steps.empty()) return false;
    StepOutput output = engine.execute(steps.steps.front());
    steps.steps.pop_front();
    core.handle(std::move(output));
    core.prepare_steps();
    return true;
  }
  void steps_until_idle() {
    while (step()) {
    }
  }
  void wait_ms(int64_t ms) {
    clock.advance_us(ms * 1000);
    core.on_timer();
    core.prepare_steps();
  }
  void moved(MoverEvent::Kind kind, TransferId transfer) {
    core.handle(MoverEvent{.kind = kind, .link = kDecode, .transfer = transfer});
    core.prepare_steps();
  }

  // ---- shorthands ----
  static SequenceSpec sequence(TokenId first, int32_t tokens, int32_t max_tokens,
                               LinkId router = kRouter) {
    SequenceSpec sequence = test_sequence(test_tokens(tokens, first), max_tokens);
    sequence.id.id.router_epoch = router;
    return sequence;
  }
  void send_prefill(const SequenceSpec& s) {
    receive(s.id.id.router_epoch, Prefill{s.id, s.spec, s.prompt_len, s.tokens, {"d"}});
  }
  void send_open(const SequenceSpec& s, bool local = false) {
    receive(s.id.id.router_epoch, Open{s.id, s.spec, s.prompt_len, s.tokens, local});
  }
  void send_reserve(const SequenceSpec& s) {
    const auto pages = static_cast<int32_t>((s.tokens.size() + 15) / 16);
    receive(kPrefill, Reserve{.id = s.id, .cached_tokens = 0, .pages_per_group = {pages}});
  }
  // D's answer to our RESERVE, with pages enough.
  void send_grant(const SequenceSpec& s, uint64_t slot_gen) {
    GrantGroup group;
    for (size_t i = 0; i < (s.tokens.size() + 15) / 16; ++i) {
      group.page_ids.push_back(static_cast<int32_t>(i));
    }
    receive(kDecode, Grant{.id = s.id, .slot_gen = slot_gen, .groups = {group}});
  }
  // P's COMMIT to us, its pages written as P would have.
  void send_commit(const SequenceSpec& s, const Grant& grant) {
    uint64_t hash = 0;
    for (size_t i = 0; i < s.tokens.size(); ++i) {
      hash = fake_hash(hash, s.tokens[i]);
      engine.page(0, grant.groups[0].page_ids[i / 16])[i % 16] = {s.tokens[i],
                                                                  static_cast<int32_t>(i), hash};
    }
    TokenEvent first{.id = s.id, .choice = 0, .position = s.prompt_len};
    first.token = fake_sample(s.spec, 0, s.prompt_len, hash);
    receive(kPrefill, Commit{.id = s.id,
                             .slot_gen = grant.slot_gen,
                             .token_count = s.prompt_len,
                             .first_tokens = {first}});
  }

  // Pages that are neither free nor cached.
  int64_t pages_held() const {
    const PageCounts counts = ledger.counts(0);
    return counts.used + counts.granted + counts.quarantined;
  }
  // No request, no page, no step is left.
  bool nothing_left() const {
    return pages_held() == 0 && steps.steps.empty() && core.push_side().idle() &&
           core.landing_side().idle() && scheduler.running() + scheduler.waiting() == 0;
  }
  std::string at_prefill(const SequenceSpec& s) const { return core.push_side().stage(s.id); }
  std::string at_decode(const SequenceSpec& s) const { return core.landing_side().stage(s.id); }

  FakeClock clock;
  const WorkerConfig config;
  const KvLayout layout;
  PageLedger ledger;
  PrefixCache cache;
  FakeEngine engine;
  Scheduler scheduler;
  KeptOutbox outbox;
  SilentMover mover;
  KeptSteps steps;
  WorkerCore core;
};

}  // namespace baton
