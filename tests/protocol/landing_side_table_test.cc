// docs/protocol.md "D: every event in every state", cell by cell, against the real LandingSide,
// Scheduler and PageLedger.
#include <functional>
#include <iostream>

#include "decode/landing_side.h"
#include "scheduler/test_fixture.h"
#include "tests/protocol/rig.h"
#include "tests/protocol/state_table.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int32_t kPages = 16;
constexpr uint64_t kSlotGen = 1;  // D's first
constexpr LinkId kNextLink = 20;  // of the same P, later

struct LandingRig {
  LandingRig() : w({test_group()}, {kPages}), outbox(seen), mover(seen), routers(outbox) {
    routers.up(kRouterLink, kRouterEpoch);
    connect(kPeerLink, "p:1", "mapped");
    connect(kOtherPeerLink, "p:2", "mapped");
    seen.take();
  }

  void connect(LinkId link, const std::string& worker, const std::string& transport) {
    side.on_prefill_up(link, {.worker_id = worker, .epoch = 3, .role = Role::kPrefill});
    side.on_attached(link, {.transport = transport, .reply = true});
  }
  void open(bool local = false, const AttemptId& id = kAttempt) {
    SequenceSpec sequence = test_sequence(test_tokens(40, 1), 4, /*n=*/2);
    side.on_open({.id = id,
                  .spec = sequence.spec,
                  .prompt_len = sequence.prompt_len,
                  .tokens = sequence.tokens,
                  .local = local});
  }
  void reserve(LinkId link = kPeerLink, const AttemptId& id = kAttempt) {
    side.on_reserve(link, {.id = id, .pages_per_group = {3}});
    if (!side.grant_views().empty()) push();
  }
  // P's copies into the granted pages.
  void push() {
    const std::vector<TokenId> tokens = test_tokens(40, 1);
    const auto& [first_token, pages] = outbox.last<Grant>().groups[0];
    uint64_t hash = 0;
    for (int32_t i = 0; i < 40; ++i) {
      hash = fake_hash(hash, tokens[i]);
      if (i >= first_token)
        w.engine.page(0, pages[(i - first_token) / 16])[i % 16] = {tokens[i], i, hash};
    }
  }
  Commit commit(bool digest = false) const {
    Commit commit{.id = kAttempt, .slot_gen = kSlotGen, .token_count = 40};
    if (digest) commit.digest = PagesDigest{1, 2};
    for (int32_t choice = 0; choice < 2; ++choice)
      commit.first_tokens.push_back({.id = kAttempt, .choice = choice, .position = 40});
    return commit;
  }
  void stores_ended(const std::string& transport) {
    side.on_mover(
        {.kind = MoverEvent::Kind::kStoresEnded, .link = kPeerLink, .transport = transport});
  }
  void verified(bool intact) {
    side.on_mover({.kind = MoverEvent::Kind::kVerified, .slot_gen = kSlotGen, .intact = intact});
  }
  void reach(const std::string& state);
  std::string state();
  bool is_open() const { return w.scheduler.waiting() + w.scheduler.running() == 0; }

  Happenings seen;
  TestWorker w;
  WrittenOutbox outbox;
  WrittenMover mover;
  RouterLinks routers;
  const DecodeConfig config{.local_prefill_tokens = 8};
  LandingSide side{config,  65536, w.layout, w.scheduler, w.ledger,
                   w.cache, mover, outbox,   routers,     w.clock};
};

void LandingRig::reach(const std::string& state) {
  if (state == "early") reserve();
  if (state == "remembered") side.on_cancel(kAttempt, -1);
  if (state != "gone" && state != "early" && state != "remembered") open();
  if (state != "open" && side.size() == 1) {
    reserve();
    if (state == "decoding") side.on_commit(kPeerLink, commit());
    if (state == "verifying" || state == "dropped") side.on_commit(kPeerLink, commit(true));
    if (state == "dropped" || state == "quarantined") side.on_cancel(kAttempt, -1);
  }
  seen.take();
}

// What cannot be seen is found out: an OPEN is granted at once, ignored, or just kept.
std::string LandingRig::state() {
  const auto attempts = side.attempt_views();
  const auto grants = side.grant_views();
  if (!grants.empty())
    return attempts.empty() && grants[0].state == "verifying" ? "dropped" : grants[0].state;
  if (!attempts.empty())
    return attempts[0].state == "granted" ? "without its grant" : is_open() ? "open" : "decoding";
  open();
  const bool granted = !side.grant_views().empty();
  const bool opened = !side.attempt_views().empty();
  seen.take();
  return granted ? "early" : opened ? "gone" : "remembered";
}

using Event = std::function<void(LandingRig&)>;
const std::vector<std::pair<std::string, Event>> kEvents = {
    {"OPEN", [](LandingRig& r) { r.open(); }},
    {"OPEN, local", [](LandingRig& r) { r.open(true); }},
    {"CANCEL", [](LandingRig& r) { r.side.on_cancel(kAttempt, -1); }},
    {"CANCEL of one choice", [](LandingRig& r) { r.side.on_cancel(kAttempt, 0); }},
    {"CLOSE", [](LandingRig& r) { r.side.on_close(kAttempt); }},
    {"R lost", [](LandingRig& r) { r.side.on_router_lost(kRouterEpoch); }},
    {"RESERVE", [](LandingRig& r) { r.reserve(); }},
    {"RESERVE of another P", [](LandingRig& r) { r.reserve(kOtherPeerLink); }},
    {"COMMIT", [](LandingRig& r) { r.side.on_commit(kPeerLink, r.commit()); }},
    {"COMMIT with digest", [](LandingRig& r) { r.side.on_commit(kPeerLink, r.commit(true)); }},
    {"COMMIT that does not fit",
     [](LandingRig& r) {
       Commit commit = r.commit();
       commit.token_count = 39;
       r.side.on_commit(kPeerLink, commit);
     }},
    {"COMMIT of another P", [](LandingRig& r) { r.side.on_commit(kOtherPeerLink, r.commit()); }},
    {"DRAINED", [](LandingRig& r) { r.side.on_drained(kPeerLink, {kSlotGen}); }},
    {"DRAINED of another P", [](LandingRig& r) { r.side.on_drained(kOtherPeerLink, {kSlotGen}); }},
    {"DRAINED_ALL",
     [](LandingRig& r) {
       r.connect(kNextLink, "p:1", "mapped");
       r.seen.take();
       r.side.on_drained_all(kNextLink);
     }},
    {"DRAINED_ALL of another P", [](LandingRig& r) { r.side.on_drained_all(kOtherPeerLink); }},
    {"P lost", [](LandingRig& r) { r.side.on_link_down(kPeerLink); }},
    {"P lost, D stores itself",
     [](LandingRig& r) {
       r.side.on_attached(kPeerLink, {.transport = "tcp", .reply = true});
       r.side.on_link_down(kPeerLink);
     }},
    {"P dead",
     [](LandingRig& r) {
       r.side.on_mover({.kind = MoverEvent::Kind::kPeerDead, .link = kPeerLink});
     }},
    {"P's stores have ended",
     [](LandingRig& r) {
       r.side.on_attached(kPeerLink, {.transport = "nccl", .reply = true});
       r.stores_ended("nccl");
     }},
    {"P lost, then its stores have ended",
     [](LandingRig& r) {
       r.side.on_attached(kPeerLink, {.transport = "nccl", .reply = true});
       r.side.on_link_down(kPeerLink);
       r.stores_ended("nccl");
     }},
    {"P lost, then its stores by another transport have ended",
     [](LandingRig& r) {
       r.side.on_link_down(kPeerLink);
       r.stores_ended("nccl");
     }},
    {"pages intact", [](LandingRig& r) { r.verified(true); }},
    {"pages differ", [](LandingRig& r) { r.verified(false); }},
    {"last choice ended",
     [](LandingRig& r) {
       r.w.drain();
       for (const SeqId seq : r.w.ended) r.side.on_ended(seq);
     }},
    {"timers",
     [](LandingRig& r) {
       r.w.clock.advance_us(200'000'000);
       r.side.on_timer();
     }},
};

// What the pool says of the pages in each state; what was granted is 3 pages.
void check_pages(LandingRig& rig, const std::string& state) {
  const PageCounts counts = rig.w.ledger.counts(0);
  CHECK(counts.free + counts.cached + counts.used + counts.granted + counts.quarantined == kPages);
  CHECK(counts.granted ==
        (state == "granted" || state == "verifying" || state == "dropped" ? 3 : 0));
  CHECK(counts.quarantined == (state == "quarantined" ? 3 : 0));
  if (state == "gone" || state == "open" || state == "remembered") CHECK(counts.used == 0);
}

}  // namespace

TEST_CASE("D: every event in every state") {
  const StateTable table = read_state_table("### D: every event in every state");
  CHECK(table.states.size() == 9);
  CHECK(table.events.size() == kEvents.size());
  for (const auto& [event, send] : kEvents) {
    std::string actual = "| " + event + " |";
    bool same = true;
    for (const std::string& state : table.states) {
      CAPTURE(state);
      CAPTURE(event);
      const auto want = table.cells.find({state, event});
      REQUIRE_MESSAGE(want != table.cells.end(), "docs/protocol.md lacks this cell");
      const bool verifies = state == "verifying" || state == "dropped";
      if (event.starts_with("pages ") && !verifies) {  // only our own mover could say so
        CHECK(want->second == "×");
        actual += " × |";
        continue;
      }
      LandingRig rig;
      rig.reach(state);
      send(rig);
      const std::vector<std::string> happened = rig.seen.take();
      const PageCounts counts = rig.w.ledger.counts(0);
      const std::string after = rig.state();
      if (after != "early") check_pages(rig, after == "gone" ? "open" : after);
      const std::string got = cell_text(state, after, happened);
      CHECK(got == want->second);
      same &= got == want->second;
      actual += " " + got + " |";
      CHECK(counts.total == kPages);
    }
    if (!same)
      std::cerr << "docs/protocol.md should say, or the code is wrong:\n" << actual << '\n';
  }
}

TEST_CASE(
    "the prefix that D holds stays pinned when P is lost before COMMIT, for the next attempt") {
  LandingRig rig;
  SequenceSpec first = test_sequence(test_tokens(20, 1), 1);
  first.tokens.resize(20);
  rig.side.on_open({.id = {{kRouterEpoch, 4}, 1},
                    .spec = first.spec,
                    .prompt_len = 20,
                    .tokens = first.tokens,
                    .local = true});
  rig.w.drain();
  for (const SeqId seq : rig.w.ended) rig.side.on_ended(seq);
  REQUIRE(rig.w.ledger.counts(0).cached == 1);

  rig.open();
  rig.reserve();
  REQUIRE(rig.outbox.last<Grant>().cached_tokens == 16);
  rig.side.on_link_down(kPeerLink);
  CHECK(rig.w.ledger.counts(0).used == 1);
  CHECK(rig.w.ledger.counts(0).quarantined == 2);

  const AttemptId next{kAttempt.id, kAttempt.attempt + 1};
  rig.open(false, next);
  rig.reserve(kOtherPeerLink, next);
  CHECK(rig.outbox.last<Grant>().id == next);
  CHECK(rig.outbox.last<Grant>().cached_tokens == 16);
  rig.side.on_link_down(kOtherPeerLink);
  CHECK(rig.w.ledger.counts(0).used == 1);
  rig.w.clock.advance_us((rig.config.keep_prefix_ms + 1) * 1000);
  rig.side.on_timer();
  CHECK(rig.w.ledger.counts(0).used == 0);
}

TEST_CASE("a P that has stopped holds at most its share, quarantine included; others go on") {
  LandingRig rig;
  const auto ask = [&](uint64_t sequence, LinkId link) {
    const AttemptId id{{kRouterEpoch, sequence}, 1};
    rig.open(false, id);
    rig.seen.take();
    rig.reserve(link, id);
    return rig.seen.take().at(0);
  };
  CHECK(ask(1, kPeerLink) == "GRANT");
  CHECK(ask(2, kPeerLink) == "GRANT");
  CHECK(ask(3, kPeerLink) == "FULL");  // 9 of 16 pages
  rig.side.on_link_down(kPeerLink);
  CHECK(rig.w.ledger.counts(0).quarantined == 6);
  rig.connect(kNextLink, "p:1", "mapped");  // it has not said DRAINED_ALL
  CHECK(ask(4, kNextLink) == "FULL");
  CHECK(ask(5, kOtherPeerLink) == "GRANT");
  rig.side.on_drained_all(kNextLink);
  CHECK(ask(6, kNextLink) == "GRANT");
}

}  // namespace baton
