// Bugs put into a worker on purpose, from outside: a run that does not notice them would be a test
// that cannot fail.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>

#include "kvtransfer/loopback.h"
#include "worker/inbox.h"

namespace baton::sim {

enum class SeededBug : uint8_t {
  kNone,
  kFreesOnTimeout,     // D takes its own RELEASE for P's DRAINED: pages are free while P may still
                       // write
  kNoGenerationCheck,  // D takes any DRAINED for one of its latest grant to that peer
  kCommitsEarly,       // P takes the end of computing for the end of copying
  kAcksEarly,          // D takes whatever has landed for what was sent: the digest is not checked
};

// A mover that, told to, says too early that a transfer is done or that its pages are intact.
class EagerMover final : public PageMover {
 public:
  EagerMover(LoopbackMover& mover, SeededBug bug, Sink sink)
      : mover_(mover), bug_(bug), sink_(std::move(sink)) {}

  std::string offer(LinkId link) override { return mover_.offer(link); }
  void allow(LinkId link, uint64_t slot_gen,
             const std::vector<std::vector<int32_t>>& pages) override {
    mover_.allow(link, slot_gen, pages);
  }
  void disallow(uint64_t slot_gen) override { mover_.disallow(slot_gen); }
  void verify(uint64_t slot_gen, const std::vector<std::vector<int32_t>>& pages,
              const PagesDigest& want) override {
    if (bug_ == SeededBug::kAcksEarly) {
      sink_({.kind = MoverEvent::Kind::kVerified, .slot_gen = slot_gen, .intact = true});
    } else {
      mover_.verify(slot_gen, pages, want);
    }
  }
  bool stores_ourselves(const std::string& transport) const override {
    return mover_.stores_ourselves(transport);
  }
  void forget(LinkId link) override { mover_.forget(link); }
  void attach(LinkId link, const std::string& offer, Lease lease) override {
    mover_.attach(link, offer, std::move(lease));
  }
  void detach(LinkId link) override { mover_.detach(link); }
  void begin(TransferId transfer, LinkId link, uint64_t slot_gen) override {
    mover_.begin(transfer, link, slot_gen);
  }
  void push(const std::vector<PushPage>& pages) override { mover_.push(pages); }
  void finish(TransferId transfer, uint64_t last_step) override {
    mover_.finish(transfer, last_step);
    if (bug_ != SeededBug::kCommitsEarly) return;
    told_.insert(transfer);
    sink_({.kind = MoverEvent::Kind::kDone, .transfer = transfer});
  }
  void abort(TransferId transfer) override { mover_.abort(transfer); }
  void layer_written(const StepInput& step, int32_t layer) override {
    mover_.layer_written(step, layer);
  }

  // The real end of a transfer whose end has been told already is no news.
  bool is_news(const MoverEvent& event) const {
    return event.kind != MoverEvent::Kind::kDone || told_.count(event.transfer) == 0;
  }

 private:
  LoopbackMover& mover_;
  const SeededBug bug_;
  const Sink sink_;
  std::set<TransferId> told_;
};

}  // namespace baton::sim
