// Transport "loopback" and its PageMover for simulators: no threads, no sockets, every copy and
// event happens when the test says so. The state machine is the real one (Pusher); only the bytes'
// way is simulated. Single-threaded.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvtransfer/fault_transport.h"
#include "kvtransfer/page_mover.h"
#include "kvtransfer/page_verifier.h"
#include "kvtransfer/pusher.h"

namespace baton {

class LoopbackMover;

// Where the movers of one simulated world find each other. Outlives them.
class LoopbackFabric {
 public:
  // Null once it has been killed or destroyed.
  LoopbackMover* find(uint64_t instance) const {
    const auto it = movers_.find(instance);
    return it == movers_.end() ? nullptr : it->second;
  }

 private:
  friend class LoopbackMover;
  uint64_t next_instance_ = 1;
  std::map<uint64_t, LoopbackMover*> movers_;
};

struct LoopbackOptions {
  // As tcp: D stores itself, so that a page is written only while it is allowed. False: as mapped.
  bool stores_ourselves = false;
  std::optional<FaultPlan> faults;  // of what we push; no delays: step() is the test's
};

class LoopbackMover final : public PageMover {
 public:
  // `pools`, `fabric` and `clock` outlive it.
  LoopbackMover(LoopbackFabric& fabric, const KvTransferConfig& config, const KvLayout& layout,
                std::vector<PagePool*> pools, const Clock& clock, Sink sink,
                LoopbackOptions options = {});
  ~LoopbackMover() override;

  // PageMover
  std::string offer(LinkId link) override;
  void allow(LinkId link, uint64_t slot_gen,
             const std::vector<std::vector<int32_t>>& pages_per_group) override;
  void disallow(uint64_t slot_gen) override;
  void verify(uint64_t slot_gen, const std::vector<std::vector<int32_t>>& pages_per_group,
              const PagesDigest& want) override;
  bool stores_ourselves(const std::string& transport) const override;
  void forget(LinkId link) override;
  void attach(LinkId link, const std::string& offer, Lease lease) override;
  void detach(LinkId link) override;
  void begin(TransferId transfer, LinkId link, uint64_t slot_gen) override;
  void push(const std::vector<PushPage>& pages) override;
  void finish(TransferId transfer, uint64_t last_step) override;
  void abort(TransferId transfer) override;
  void layer_written(const StepInput& step, int32_t layer) override;

  // ---- the test's hands ----
  // Each copy takes two steps: the first begins it (lease checked, first half of its bytes), the
  // second ends it. Between them it is in flight. False: nothing to do (or stalled, or killed).
  bool step();
  void run_to_idle();    // step() until nothing is left, then deliver_events()
  int deliver_events();  // calls the sink for everything that has happened; returns how many
  size_t pending_events() const { return events_.size(); }
  // As SIGSTOP and SIGCONT: while stalled, step() does nothing; a copy in flight ends afterwards.
  void set_stalled(bool stalled) { stalled_ = stalled; }
  // As SIGKILL: no copy of ours will happen any more, and every mover that we were attached to
  // hears kPeerDead.
  void kill();

 private:
  class LoopbackRoute;
  class LoopbackTransport;

  LoopbackFabric& fabric_;
  const KvLayout layout_;
  const std::vector<PagePool*> pools_;
  const Sink sink_;
  const uint64_t instance_;
  const LoopbackOptions options_;
  OfferBook offers_;
  GrantBoard grants_;
  std::unique_ptr<Transport> decorated_;  // owns transport_
  LoopbackTransport* transport_ = nullptr;
  std::unique_ptr<Pusher> pusher_;
  PageVerifier verifier_;
  std::deque<MoverEvent> events_;
  bool stalled_ = false;
  bool killed_ = false;
};

}  // namespace baton
