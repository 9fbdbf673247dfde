// docs/protocol.md "P: every event in every state", cell by cell, against the real PushSide,
// Scheduler and PageLedger.
#include <functional>
#include <iostream>
#include <optional>

#include "prefill/push_side.h"
#include "scheduler/test_fixture.h"
#include "tests/protocol/rig.h"
#include "tests/protocol/state_table.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int32_t kPages = 16;
constexpr uint64_t kSlotGen = 7;

struct PushRig {
  PushRig() : w({test_group()}, {kPages}), outbox(seen), mover(seen), routers(outbox) {
    routers.up(kRouterLink, kRouterEpoch);
  }

  std::string state() const {
    for (const HandoffView& view : side.views()) {
      if (view.id == kAttempt) return view.peer.empty() ? "local" : view.state;
    }
    return "gone";
  }
  void connect(LinkId link, const std::string& worker) {
    side.on_decode_up(link, {.worker_id = worker, .epoch = 3, .role = Role::kDecode});
    side.on_offer(link, {.blob = "offer"});
    side.on_mover({.kind = MoverEvent::Kind::kAttached, .link = link, .transport = "mapped"});
  }
  void prefill(std::vector<std::string> candidates, const AttemptId& id = kAttempt) {
    SequenceSpec sequence = test_sequence(test_tokens(40, 1), 8);
    side.on_prefill({.id = id,
                     .spec = sequence.spec,
                     .prompt_len = sequence.prompt_len,
                     .tokens = sequence.tokens,
                     .candidates = std::move(candidates)});
  }
  Grant grant() const {
    return {.id = kAttempt, .slot_gen = kSlotGen, .groups = {{.page_ids = {4, 5, 6}}}};
  }
  void start() {
    if (!running) running = w.scheduler.next_step();
    if (!running) return;
    for (const PromptStarted& started : running->started) side.on_started(started);
    for (const SeqId seq : running->pushed_whole) side.on_last_step(seq, running->input.step);
  }
  void compute() {
    while (running) {
      StepResult result = w.scheduler.complete(w.engine.execute(running->input));
      running.reset();
      for (PromptDone& done : result.prompts_done) side.on_prompt_done(std::move(done));
      for (const SeqId seq : result.ended) side.on_ended(seq);
      start();
    }
  }
  void moved(MoverEvent::Kind kind) {
    side.on_mover({.kind = kind, .transfer = mover.begun == 0 ? 99 : mover.begun});
  }
  void reach(const std::string& state);

  Happenings seen;
  TestWorker w;
  WrittenOutbox outbox;
  WrittenMover mover;
  RouterLinks routers;
  PrefillConfig config;
  PushSide side{config,  3000,  65536,  w.layout, w.scheduler,
                w.cache, mover, outbox, routers,  w.clock};
  std::optional<PreparedStep> running;
};

void PushRig::reach(const std::string& state) {
  if (state == "local") {
    prefill({});
  } else if (state == "queued") {
    prefill({"d:1"});
  } else {
    connect(kPeerLink, "d:1");
    prefill({"d:1"});
    if (state == "cancelled") side.on_cancel(kAttempt);
    if (state == "gone") side.on_refuse(kPeerLink, {.id = kAttempt, .kind = Refuse::Kind::kGone});
    if (state != "reserving" && state != "cancelled" && state != "gone") {
      side.on_grant(kPeerLink, grant());
      if (state != "granted") start();
      if (state == "transferring" || state == "committed") compute();
      if (state == "committed") moved(MoverEvent::Kind::kDone);
      if (state == "draining") side.on_cancel(kAttempt);
    }
  }
  seen.take();
}

const std::vector<std::pair<std::string, std::function<void(PushRig&)>>> kEvents = {
    {"PREFILL again", [](PushRig& r) { r.prefill({"d:1"}); }},
    {"CANCEL", [](PushRig& r) { r.side.on_cancel(kAttempt); }},
    {"R lost", [](PushRig& r) { r.side.on_router_lost(kRouterEpoch); }},
    {"GRANT", [](PushRig& r) { r.side.on_grant(kPeerLink, r.grant()); }},
    {"GRANT of another link", [](PushRig& r) { r.side.on_grant(kOtherPeerLink, r.grant()); }},
    {"FULL",
     [](PushRig& r) {
       r.side.on_refuse(kPeerLink, {.id = kAttempt, .kind = Refuse::Kind::kFull});
     }},
    {"LOCAL",
     [](PushRig& r) {
       r.side.on_refuse(kPeerLink, {.id = kAttempt, .kind = Refuse::Kind::kLocal});
     }},
    {"GONE",
     [](PushRig& r) {
       r.side.on_refuse(kPeerLink, {.id = kAttempt, .kind = Refuse::Kind::kGone});
     }},
    {"ACK", [](PushRig& r) { r.side.on_ack(kPeerLink, {.slot_gen = kSlotGen}); }},
    {"NAK",
     [](PushRig& r) { r.side.on_ack(kPeerLink, {.slot_gen = kSlotGen, .accepted = false}); }},
    {"ACK of another grant", [](PushRig& r) { r.side.on_ack(kPeerLink, {.slot_gen = 6}); }},
    {"RELEASE", [](PushRig& r) { r.side.on_release(kPeerLink, {kSlotGen}); }},
    {"RELEASE of another grant", [](PushRig& r) { r.side.on_release(kPeerLink, {6}); }},
    {"D lost", [](PushRig& r) { r.side.on_link_down(kPeerLink); }},
    {"prompt starts", [](PushRig& r) { r.start(); }},
    {"prompt computed",
     [](PushRig& r) {
       if (r.running) r.compute();
     }},
    {"prompt computed, its last copy has ended",
     [](PushRig& r) {
       if (!r.running) return;
       r.moved(MoverEvent::Kind::kDone);
       r.compute();
     }},
    {"last copy ended", [](PushRig& r) { r.moved(MoverEvent::Kind::kDone); }},
    {"last copy ended, then CANCEL",
     [](PushRig& r) {
       r.moved(MoverEvent::Kind::kDone);
       r.side.on_cancel(kAttempt);
     }},
    {"a copy failed", [](PushRig& r) { r.moved(MoverEvent::Kind::kFailed); }},
    {"copies stopped", [](PushRig& r) { r.moved(MoverEvent::Kind::kAborted); }},
    {"timers",
     [](PushRig& r) {
       r.w.clock.advance_us(10'000'000);
       r.side.on_timer();
     }},
};

// Our own pages are held while a step or a copy may still read or write them, and no longer.
void check_pages(PushRig& rig, const std::string& state) {
  const PageCounts counts = rig.w.ledger.counts(0);
  CHECK(counts.free + counts.cached + counts.used == kPages);
  const bool holds = state == "prefilling" || state == "transferring" || state == "draining" ||
                     (state == "local" && rig.running);
  if (!rig.running) CHECK((counts.used > 0) == holds);
  rig.compute();
  if (state == "gone") CHECK(rig.w.ledger.counts(0).used == 0);
}

}  // namespace

TEST_CASE("P: every event in every state") {
  const StateTable table = read_state_table("### P: every event in every state");
  CHECK(table.states.size() == 10);
  CHECK(table.events.size() == kEvents.size());
  for (const auto& [event, send] : kEvents) {
    std::string actual = "| " + event + " |";
    bool same = true;
    for (const std::string& state : table.states) {
      CAPTURE(state);
      CAPTURE(event);
      PushRig rig;
      rig.reach(state);
      REQUIRE(rig.state() == state);
      send(rig);
      const std::string got = cell_text(state, rig.state(), rig.seen.take());
      const auto want = table.cells.find({state, event});
      REQUIRE_MESSAGE(want != table.cells.end(), "docs/protocol.md lacks this cell");
      CHECK(got == want->second);
      same &= got == want->second;
      actual += " " + got + " |";
      check_pages(rig, rig.state());
    }
    if (!same)
      std::cerr << "docs/protocol.md should say, or the code is wrong:\n" << actual << '\n';
  }
}

TEST_CASE("after FULL the next candidate is asked, after the last one the router hears REFUSED") {
  PushRig rig;
  rig.connect(kPeerLink, "d:1");
  rig.connect(kOtherPeerLink, "d:2");
  rig.prefill({"d:1", "d:2"});
  CHECK(rig.outbox.sent.back().first == kPeerLink);
  const Refuse full{.id = kAttempt, .kind = Refuse::Kind::kFull};
  rig.side.on_refuse(kPeerLink, full);
  CHECK(rig.outbox.sent.back().first == kOtherPeerLink);
  CHECK(std::holds_alternative<Reserve>(rig.outbox.sent.back().second));
  rig.side.on_refuse(kPeerLink, full);  // repeated: it is another one's turn
  CHECK(rig.state() == "reserving");
  rig.side.on_refuse(kOtherPeerLink, full);
  CHECK(std::holds_alternative<Refused>(rig.outbox.sent.back().second));
  CHECK(rig.state() == "gone");
}

TEST_CASE("a D that does not answer holds up its own prompts only") {
  PushRig rig;
  rig.connect(kPeerLink, "d:1");
  rig.connect(kOtherPeerLink, "d:2");
  rig.seen.take();
  for (uint64_t i = 1; i <= 6; ++i) rig.prefill({"d:1"}, {{kRouterEpoch, i}, 1});
  CHECK(rig.seen.take().size() == 2);  // max_peer_share of reserve_ahead
  rig.prefill({"d:2"}, {{kRouterEpoch, 7}, 1});
  CHECK(rig.outbox.sent.back().first == kOtherPeerLink);
  CHECK(rig.seen.take() == std::vector<std::string>{"RESERVE"});
}

TEST_CASE("a GRANT that comes twice does not end the first one") {
  PushRig rig;
  rig.reach("prefilling");
  rig.side.on_grant(kPeerLink, rig.grant());
  CHECK(rig.seen.take().empty());
  CHECK(rig.state() == "prefilling");
  rig.compute();
}

}  // namespace baton
