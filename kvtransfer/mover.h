// The PageMover of a worker process: one handoff thread that sleeps in PollLoop, serves D's side of
// every transport and drives P's Pusher. Calls from the loop's and the engine's thread only
// enqueue.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/page_mover.h"
#include "kvtransfer/page_verifier.h"
#include "kvtransfer/pusher.h"
#include "kvtransfer/transport.h"

namespace baton {

// What other threads want from the handoff thread, in their order. Thread-safe. Not bounded by
// itself: commands are bounded by the grants that a worker may hold, slices by the pages of its
// pools.
class HandoffInbox {
 public:
  using Command = std::function<void()>;
  struct Batch {
    std::deque<Command> commands;
    uint64_t written_step = 0;  // the engine has called layer_written for all layers of it; all its
                                // pushes are in here or came before
    bool stop = false;
  };

  explicit HandoffInbox(PollLoop& loop) : loop_(loop) {}
  void post(Command command);
  // Engine thread, after the last layer. Wakes the handoff thread only if a transfer might be
  // waiting for it.
  void step_written(uint64_t step);
  void transfer_begun() { add_transfers(1); }
  void transfer_ended() { add_transfers(-1); }
  void stop();
  Batch take();

 private:
  void add_transfers(int64_t change);

  PollLoop& loop_;
  std::mutex mutex_;
  Batch next_;
  int64_t transfers_ = 0;  // begun and not ended
};

class Mover final : public PageMover {
 public:
  // Puts something around each transport as it is made (tests: FaultTransport).
  using Decorator =
      std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>, PollLoop&)>;

  Mover(const KvTransferConfig& config, const KvLayout& layout, std::vector<PagePool*> pools,
        const std::string& listen_host, const Clock& clock, Sink sink,
        const Decorator& decorator = {}, std::shared_ptr<CredentialFiles> credentials = nullptr,
        std::shared_ptr<HandoffMemory> memory = make_host_handoff_memory());
  ~Mover() override;  // ends every copy, joins the thread; no event afterwards

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
  bool layers_enqueued(const StepInput& step, std::span<void* const> written) override;

 private:
  void run();
  void serve();
  void report(MoverEvent event);

  const KvLayout layout_;
  int32_t last_layer_ = -1;  // of the model, among those with KV
  const std::vector<PagePool*> pools_;
  const Sink sink_;
  const std::shared_ptr<CredentialFiles> credentials_;
  const std::shared_ptr<HandoffMemory> memory_;
  PollLoop loop_;
  HandoffInbox inbox_;
  OfferBook offers_;
  GrantBoard grants_;
  std::vector<std::unique_ptr<Transport>> transports_;  // in order of preference
  std::unique_ptr<Pusher> pusher_;
  std::unique_ptr<PageVerifier> verifier_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton
