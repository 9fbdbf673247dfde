// For the worker's unit tests: brings a request to each stage that it can be in, at P and at D, so
// that a test can ask of every stage what ends a request there.
#pragma once

#include <vector>

#include "worker/test_core.h"

namespace baton {

struct TestStage {
  std::string name;
  bool at_prefill;  // else at D
  // Brings it there.
  std::function<void(TestCore&, const SequenceSpec&)> reach;
  // What the peers and threads do once it has been given up there, whatever was under way.
  std::function<void(TestCore&, const SequenceSpec&)> settle;
};

inline std::vector<TestStage> prefill_stages() {
  const auto steps = [](TestCore& w, const SequenceSpec&) { w.steps_until_idle(); };
  const auto copies_end = [](TestCore& w, const SequenceSpec&) {
    w.steps_until_idle();
    for (const TransferId transfer : w.mover.aborted) {
      w.moved(MoverEvent::Kind::kAborted, transfer);
    }
  };
  const auto reserve = [](TestCore& w, const SequenceSpec& s) { w.send_prefill(s); };
  const auto grant = [](TestCore& w, const SequenceSpec& s) {
    w.send_prefill(s);
    // Another prompt of ours has all the pages.
    w.send_open(TestCore::sequence(90, 900, 10), /*local=*/true);
    w.send_grant(s, 7);
  };
  const auto prefill = [](TestCore& w, const SequenceSpec& s) {
    w.send_prefill(s);
    w.send_grant(s, 7);
    w.step();
  };
  const auto copy_ahead = [](TestCore& w, const SequenceSpec& s) {
    w.send_prefill(s);
    w.send_grant(s, 7);
    while (w.mover.finished.empty() && w.step()) {
    }
    w.moved(MoverEvent::Kind::kDone, w.mover.finished.at(0));  // the last step still computes
  };
  const auto transfer = [](TestCore& w, const SequenceSpec& s) {
    w.send_prefill(s);
    w.send_grant(s, 7);
    w.steps_until_idle();
  };
  return {
      {"queued", true,
       [](TestCore& w, const SequenceSpec& s) {
         w.send_prefill(TestCore::sequence(91, 40, 10));  // reserve_ahead is 1
         w.send_prefill(s);
       },
       [](TestCore& w, const SequenceSpec&) {
         const SequenceSpec first = TestCore::sequence(91, 40, 10);
         w.receive(kRouter, Cancel{first.id});
         w.receive(kDecode, Refuse{.id = first.id, .kind = Refuse::Kind::kGone});
       }},
      {"reserving", true, reserve,
       [](TestCore& w, const SequenceSpec& s) {
         w.send_grant(s, 7);
         CHECK(w.outbox.take<Drained>(kDecode).size() == 1);
       }},
      {"granted", true, grant,
       [](TestCore& w, const SequenceSpec&) {
         CHECK(w.outbox.take<Drained>(kDecode).size() == 1);
         w.receive(kRouter, Cancel{TestCore::sequence(90, 900, 10).id});
         w.steps_until_idle();
       }},
      {"prefilling", true, prefill, copies_end},
      {"prefilling", true, copy_ahead, steps},
      {"transferring", true, transfer, copies_end},
  };
}

inline std::vector<TestStage> decode_stages() {
  const auto steps = [](TestCore& w, const SequenceSpec&) { w.steps_until_idle(); };
  const auto peer_drains = [](TestCore& w, const SequenceSpec&) {
    for (const Release& release : w.outbox.take<Release>(kPrefill)) {
      w.receive(kPrefill, Drained{release.slot_gen});
    }
  };
  const auto land = [](TestCore& w, const SequenceSpec& s) {
    w.send_open(s);
    w.send_reserve(s);
    w.send_commit(s, w.outbox.take<Grant>(kPrefill).at(0));
    w.step();
  };
  return {
      {"queued", false, [](TestCore& w, const SequenceSpec& s) { w.send_open(s); }, steps},
      {"granted", false,
       [](TestCore& w, const SequenceSpec& s) {
         w.send_open(s);
         w.send_reserve(s);
       },
       peer_drains},
      {"prefilling", false,
       [](TestCore& w, const SequenceSpec& s) {
         w.send_open(s, /*local=*/true);
         w.step();
       },
       steps},
      {"decoding", false, land, steps},
      {"preempted", false,
       [](TestCore& w, const SequenceSpec& s) {
         w.send_open(TestCore::sequence(90, 500, 400), /*local=*/true);
         w.send_open(s, /*local=*/true);
         while (w.at_decode(s) != "preempted" && w.step()) {
         }
       },
       [](TestCore& w, const SequenceSpec&) {
         w.receive(kRouter, Cancel{TestCore::sequence(90, 500, 400).id});
         w.steps_until_idle();
       }},
  };
}

inline std::vector<TestStage> test_stages() {
  std::vector<TestStage> stages = prefill_stages();
  for (TestStage& stage : decode_stages()) stages.push_back(std::move(stage));
  return stages;
}

}  // namespace baton
