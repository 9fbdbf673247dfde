// P's side of the handoff as one state machine: links being attached, transfers, slices waiting and
// in flight. No thread, no clock of its own: the handoff thread (mover.cc) and the simulator
// (loopback.cc) drive the same class. One owner thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvtransfer/page_hasher.h"
#include "kvtransfer/transport.h"

namespace baton {

// A transfer ends by exactly one event: kDone, kFailed or kAborted; what comes for it afterwards is
// ignored.
class Pusher final : public RouteOwner {
 public:
  using Report = std::function<void(MoverEvent)>;

  // `transports` in order of preference, borrowed. `hasher` makes the digests that kDone tells;
  // null: it tells none.
  Pusher(const KvTransferConfig& config, const KvLayout& layout, std::vector<PagePool*> pools,
         std::vector<Transport*> transports, std::unique_ptr<PageHasher> hasher, const Clock& clock,
         Report report);
  ~Pusher() override;

  // The calls of PageMover with the same names; their events come from pump(), but for kDetached.
  void attach(LinkId link, const std::string& blob, Lease lease);
  void detach(LinkId link);
  void begin(TransferId transfer, LinkId link, uint64_t slot_gen);
  void finish(TransferId transfer, uint64_t last_step);
  void abort(TransferId transfer);

  void push_pages(const std::vector<PushPage>& pages);
  // `layer`: of the model. Takes those of `pages` whose group has that layer. `after`: as in Slice.
  void push_layer(const std::vector<PushPage>& pages, int32_t layer, void* after = nullptr);
  // All layers of this step and of every earlier one have been given to push_layer.
  void step_written(uint64_t step) { written_step_ = step; }

  // Starts copies where there is room, for a bounded number of bytes, and reports what has ended.
  // True: call again soon.
  bool pump();

  // RouteOwner
  void route_ready(LinkId link, const Measurement& measurement) override;
  void slice_done(LinkId link, TransferId transfer) override;
  void slice_refused(LinkId link, TransferId transfer, const std::string& reason) override;
  void route_broken(LinkId link, const Status& reason) override;

 private:
  struct Transfer {
    LinkId link = 0;
    uint64_t slot_gen = 0;
    int64_t waiting = 0;            // slices in the link's queue
    int64_t in_flight = 0;          // slices started and not completed
    int64_t hashing = 0;            // pages
    std::vector<PushPage> to_hash;  // once the copies have been made: not written yet
    PagesDigestBuilder digest;
    std::optional<uint64_t> last_step;
    bool aborted = false;
    std::string error;
    bool ending() const { return aborted || !error.empty(); }
  };
  struct Link {
    Offer offer;
    Lease lease;
    std::unique_ptr<Route> route;
    size_t transport = 0;  // index of the one being tried, or in use
    bool attached = false;
    bool detaching = false;               // the end of its route is awaited
    std::optional<Measurement> measured;  // route_ready has come, pump() has not seen it yet
    std::optional<Status> broken;         // route_broken likewise
    std::string failures;                 // of the transports tried
    std::deque<Slice> queue;              // of all its transfers; those that have ended are skipped
  };
  using Links = std::map<LinkId, Link>;

  bool try_transports(LinkId id, Link& link);  // from link.transport on; false: none is left
  void note_failure(Link& link, const std::string& transport, const std::string& reason);
  void check_measurement(Link& link, LinkId id);
  Links::iterator settle_link(Links::iterator it);
  bool start_copies(Link& link);
  void finish_detach(LinkId id);
  void fail_transfers(LinkId link, const std::string& reason);
  void settle_transfers();
  void add_slice(const PushPage& page, int64_t offset, int64_t bytes, void* after);
  void hash_page(const PushPage& page);
  bool copied(const Transfer& transfer) const;  // all that there will be
  void hash_what_is_copied();
  Transfer* find(TransferId transfer);

  const KvTransferConfig config_;
  const KvLayout layout_;
  const std::vector<PagePool*> pools_;
  const std::vector<Transport*> transports_;
  const std::unique_ptr<PageHasher> hasher_;
  const Clock& clock_;
  const Report report_;
  Links links_;
  std::map<TransferId, Transfer> transfers_;
  uint64_t written_step_ = 0;
};

}  // namespace baton
