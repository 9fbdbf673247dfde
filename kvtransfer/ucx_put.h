// Transport "ucx" for GPU memory: P puts slices into D's pages with ucp_put_nbx: by UCX's cuda_ipc
// on one host, by a NIC (rc) where there is one. D's processor takes no part in it, so D cannot
// refuse a put: P keeps to its grants, as with "mapped", and D gives a page away only by DRAINED or
// by proof of P's death.
//
// What it can and cannot fence. P's process on this host: a pidfd, which P leaves first
// (death_notes.h). A connection that D has forgotten: P is told and ends its puts, but nothing at D
// takes P's mapping away. Behind a NIC: no proof of death; pages in doubt stay quarantined until P
// says DRAINED_ALL. What D offers is a UCX worker that stores nothing for anybody
// (UcxSetup::puts); P's, whose address only its Ds learn, would.
//
// Messages (header; payload), little-endian, between P's pushing and D's serving worker:
//   kHello    P -> D  {version, connect nonce, route, boot id}; P's worker address
//   kWelcome  D -> P  {route, proof nonce, connection}; slot, and address and key of D's scratch
//                     memory and of each slab
//   kCheck    P -> D  {connection, connect nonce, challenge}: it has been put into the slot
//   kChecked  D -> P  {route, proof nonce}: it is there
//   kGoodbye  D -> P  {route, proof nonce}: the connection is over
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/death_notes.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/transport.h"
#include "kvtransfer/ucx_memory.h"
#include "kvtransfer/ucx_worker.h"

namespace baton {

enum UcxPutMessage : uint16_t { kPutHello = 1, kPutWelcome, kPutCheck, kPutChecked, kPutGoodbye };
inline constexpr uint16_t kUcxPutVersion = 1;

// Scratch memory, one piece for all peers of a process: slots that challenges are put into, slots
// that they are put from, then room for probes.
inline constexpr uint32_t kUcxSlots = 1024;
inline constexpr int64_t kUcxSlotBytes = 64;
inline constexpr int64_t kUcxSourcesAt = kUcxSlots * kUcxSlotBytes;
inline constexpr int64_t kUcxProbeAt = 2 * kUcxSourcesAt;
inline constexpr int64_t kUcxScratchBytes = kUcxProbeAt + kProbeSliceBytes * kProbeSlices;

class UcxPutRoute;

class UcxPutTransport final : public Transport {
 public:
  struct Options {
    std::shared_ptr<const UcxLibrary> library;
    std::string transports;      // UCX's TLS
    bool far = false;            // among them one that reaches other hosts
    bool emulated_puts = false;  // tests, where UCX has no memory that it can write by itself
    std::string boot_id;         // tests; empty: this host's
  };
  // kUnavailable where UCX cannot share our pools' memory.
  static Result<std::unique_ptr<UcxPutTransport>> make(const TransportContext& context);
  static Result<std::unique_ptr<UcxPutTransport>> make(const TransportContext& context,
                                                       const Options& options);
  ~UcxPutTransport() override;
  const char* name() const override { return "ucx"; }
  bool stores_ourselves() const override { return false; }
  std::string endpoint() const override { return endpoint_; }
  void forget(LinkId link) override;
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override;

 private:
  friend class UcxPutRoute;
  using Memories = std::vector<std::vector<std::unique_ptr<UcxMemory>>>;  // by kv_group and slab
  struct Connection {                                                     // D's side of one peer
    LinkId link = 0;
    OfferKeys keys;
    uint64_t route = 0;  // P's number
    uint32_t slot = 0;
    bool broken = false;
    std::unique_ptr<UcxEndpoint> endpoint;
  };
  struct Hello {
    OfferBook::Found found;
    uint64_t route = 0;
    std::string address;
    bool far = false;
    Stopwatch since;
  };

  UcxPutTransport(const TransportContext& context, const Options& options,
                  std::unique_ptr<UcxWorker> serving, std::unique_ptr<UcxWorker> pushing);
  Status share_memory();
  Status register_pools(UcxWorker& worker, Memories& memories);
  const UcxMemory& source_of(const Slice& slice) const;
  int64_t mark_behind(void* event);  // passed_ reaches what it returns once the event has passed

  bool before_sleep();
  bool progress();
  bool settle_hello(const Hello& hello);  // false: it has to wait
  void welcome(const Hello& hello);
  std::string welcome_payload(uint32_t slot) const;
  void on_hello(std::string_view header, std::string_view payload);
  void on_check(std::string_view header);
  void say(Connection& connection, UcxPutMessage message);

  const TransportContext context_;
  const bool far_;
  const bool on_gpu_;
  const std::unique_ptr<UcxWorker> serving_;  // D: takes messages, no puts
  const std::unique_ptr<UcxWorker> pushing_;  // P
  std::string boot_id_;
  DeathNotes notes_;
  std::string endpoint_;
  std::unique_ptr<SharedMemory> scratch_;
  std::unique_ptr<UcxMemory> scratch_target_, scratch_source_;
  Memories targets_, sources_;
  std::string scratch_key_;
  std::vector<std::vector<std::string>> keys_;  // of targets_

  // Layers' events: one stream follows them all, in the order of the slices that wait for them.
  std::atomic<int64_t> passed_{0};
  int64_t marks_ = 0;
  void* last_event_ = nullptr;          // since the last before_sleep(): it may be recorded again
  std::unique_ptr<MarkedStream> gate_;  // null: host memory
  bool gpu_is_current_ = false;         // in the handoff thread

  std::vector<Hello> hellos_;
  uint64_t next_connection_ = 1;
  std::map<uint64_t, Connection> connections_;
  uint64_t next_route_ = 1;
  std::map<uint64_t, UcxPutRoute*> routes_;  // P's side; each takes itself out
  PollLoop::Watch serving_watch_, pushing_watch_, sleep_hook_, look_again_;
};

}  // namespace baton
