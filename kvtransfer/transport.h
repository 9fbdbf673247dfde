// One way for bytes to reach a peer's pages (mapped, ucx, tcp, loopback). A Transport serves D's
// side and makes P's routes. All of it belongs to the handoff thread, but for construction and
// endpoint().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/credential_files.h"
#include "base/link.h"
#include "base/status.h"
#include "kvtransfer/grant_board.h"
#include "kvtransfer/offer.h"
#include "kvtransfer/page_mover.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

// A contiguous part of a page: one layer's K and V, or the whole page. Checked against both pools
// before a route sees it.
struct Slice {
  TransferId transfer = 0;
  uint64_t slot_gen = 0;
  int32_t group = 0;
  int32_t dst_page = 0;
  int64_t offset = 0;  // in the page, bytes
  int64_t bytes = 0;
  const std::byte* src = nullptr;  // borrowed until the slice has completed
  void* after = nullptr;           // LayerSink: the event behind which src is complete; null: it is
};

// Of a connection, at attach, through memory that is no page.
struct Measurement {
  double gbps = 0;        // 1e9 bytes/s
  double latency_us = 0;  // of a few bytes, until the sender knows that they have arrived
};

// What a route tells P's state machine. Called from poll handlers and from inside Route::start,
// never from inside Transport::connect.
class RouteOwner {
 public:
  virtual ~RouteOwner() = default;
  virtual void route_ready(LinkId link, const Measurement& measurement) = 0;
  virtual void slice_done(LinkId link, TransferId transfer) = 0;
  // The peer did not store it: the transfer's grant is over.
  virtual void slice_refused(LinkId link, TransferId transfer, const std::string& reason) = 0;
  // It could not connect, or the connection is lost: no copy over it is in flight, none will
  // complete.
  virtual void route_broken(LinkId link, const Status& reason) = 0;
};

// P's side of one link. Its destructor ends every copy: afterwards no page of ours is read, and
// mappings are gone.
class Route {
 public:
  virtual ~Route() = default;
  virtual bool has_room() const = 0;  // false also before route_ready and after route_broken
  // Starts a copy. True: it is complete already. False: slice_done or slice_refused follows.
  // REQUIRES: has_room().
  virtual bool start(const Slice& slice) = 0;
  // Begins to end every copy. True: the route may be destroyed. False: that would wait long (for a
  // library to let go of a peer); route_broken follows, then it takes no time.
  virtual bool end() { return true; }
};

class HandoffMemory;

// What the transports of a mover share; all of it outlives them.
struct TransportContext {
  PollLoop& loop;
  const std::vector<PagePool*>& pools;  // ours, by kv_group
  OfferBook& offers;
  GrantBoard& grants;
  HandoffMemory& memory;         // what the pools are made of
  CredentialFiles& credentials;  // of the connections that cross the network
  std::string listen_host;
  int64_t attach_timeout_ms = 0;
  std::function<void(MoverEvent)> report;
  std::string ucx_library;  // as in KvTransferConfig
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  // D: we store what the peer sends, so a closed connection proves that nothing more will be
  // stored.
  virtual bool stores_ourselves() const = 0;
  // D: where we are reached; the same for every peer. Any thread.
  virtual std::string endpoint() const = 0;
  // D: closes the data connection of this link.
  virtual void forget(LinkId link) = 0;
  // P: begins to connect to `address`, a peer's endpoint(); then route_ready or route_broken,
  // within the attach timeout.
  virtual Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                                 const std::string& address, RouteOwner& owner) = 0;
};

}  // namespace baton
