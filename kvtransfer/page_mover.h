// The handoff thread's front: moves pages from our pools into pages that a peer has granted us, and
// (at the receiving side) offers our pools to peers. Knows bytes, pages, peers; never the model's
// meaning, never who may use a page. docs/design.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/credential_files.h"
#include "base/link.h"
#include "base/status.h"
#include "config/config.h"
#include "model/engine.h"
#include "model/page_pool.h"

namespace baton {

class HandoffMemory;

// P's handle of one handoff; chosen by the caller, never reused.
using TransferId = uint64_t;

// Of kDone, kFailed and kAborted each transfer gets exactly one; calls for it afterwards are
// ignored.
struct MoverEvent {
  enum class Kind : uint8_t {
    kAttached,      // P: the peer's pool can be written; transport, gbps, latency_us say how
    kAttachFailed,  // P: error says why; nothing can be pushed over this link (any more: also after
                    // kAttached, when the route is lost)
    kDone,          // P: the transfer was finished and all its copies have completed
    kFailed,    // P: a copy failed or the lease ran out; no copy of it is in flight any more, none
                // will start
    kAborted,   // P: after abort(): its last copy has ended, none will start
    kDetached,  // P: after detach(): no copy over that link is in flight, none will start; mappings
                // are gone
    kVerified,  // D: after verify(): `intact` says whether the pages of `slot_gen` hold what P says
    kPeerDead,  // D: proof that the peer's process is dead: nobody writes for it any more (its
                // pidfd became readable)
    kStoresEnded,  // D: after forget(): our last store over that link by `transport`, one that does
                   // not say so by a closed connection (nccl), has ended, none will start
    kBroken,  // the handoff thread has ended by `error` (a GPU's is for good): the process must
  };
  Kind kind = Kind::kDone;
  LinkId link = 0;
  TransferId transfer = 0;
  std::string transport;
  double gbps = 0;  // 1e9 bytes/s
  double latency_us = 0;
  std::optional<PagesDigest> digest;  // with kDone, where kvtransfer.digest is on
  uint64_t slot_gen = 0;              // of kVerified
  bool intact = false;
  std::string error;
};

// All functions but those of LayerSink: the loop's thread. None blocks. Events come through the
// sink given at construction, called from the handoff thread.
class PageMover : public LayerSink {
 public:
  using Sink = std::function<void(MoverEvent)>;

  // ---- D: our pools as a target ----
  // What the peer needs to reach our pools by any of our transports, in order of preference.
  // Opaque, authenticated by the link it travels on; carries a nonce that only this peer learns.
  virtual std::string offer(LinkId link) = 0;
  // tcp stores only into pages allowed here; other transports rely on the protocol. After
  // disallow() returns, no store of ours into these pages is under way or will start (nccl: none
  // will start; P says when its copies have ended, or kStoresEnded).
  virtual void allow(LinkId link, uint64_t slot_gen,
                     const std::vector<std::vector<int32_t>>& pages_per_group) = 0;
  virtual void disallow(uint64_t slot_gen) = 0;
  // Compares what these pages hold with P's digest (page_hasher.h), then kVerified. Until then they
  // are read: nobody may write to them.
  virtual void verify(uint64_t slot_gen, const std::vector<std::vector<int32_t>>& pages_per_group,
                      const PagesDigest& want) = 0;
  // Whether, for the peer of this link, a closed connection alone proves that nothing more will be
  // stored (tcp: we store ourselves). `transport` is what the peer's Attach reply named.
  virtual bool stores_ourselves(const std::string& transport) const = 0;
  virtual void forget(
      LinkId link) = 0;  // the link is gone; pidfd watching goes on until the peer is dead

  // ---- P: pushing ----
  virtual void attach(LinkId link, const std::string& offer,
                      Lease lease) = 0;  // then kAttached or kAttachFailed
  virtual void detach(LinkId link) = 0;  // then kDetached, after kFailed of its transfers
  virtual void begin(TransferId transfer, LinkId link, uint64_t slot_gen) = 0;
  // Whole pages whose contents are complete already (P's cached prefix).
  virtual void push(const std::vector<PushPage>& pages) = 0;
  // No page of this transfer will be added, neither here nor by a step later than `last_step` (0:
  // no step at all).
  virtual void finish(TransferId transfer, uint64_t last_step) = 0;
  virtual void abort(TransferId transfer) = 0;

  // A thread of the engine's: this layer's slices of step.pushes may go now (layers_enqueued: once
  // its event has passed). Only enqueues.
  void layer_written(const StepInput& step, int32_t layer) override = 0;
};

// The real one: threads, sockets, mappings. `pools` outlive it. Throws ConfigError for an unknown
// transport in config.transports; one that is unavailable on this machine (ucx without shared
// memory) is reported by log and left out. `credentials`: for connections that cross the network;
// null: plain. `memory`: what the pools are made of; null: the host's.
std::unique_ptr<PageMover> make_page_mover(const KvTransferConfig& config, const KvLayout& layout,
                                           std::vector<PagePool*> pools,
                                           const std::string& listen_host, const Clock& clock,
                                           PageMover::Sink sink,
                                           std::shared_ptr<CredentialFiles> credentials = nullptr,
                                           std::shared_ptr<HandoffMemory> memory = nullptr);

}  // namespace baton
