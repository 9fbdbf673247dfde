#include "kvtransfer/pusher.h"

#include <algorithm>

#include "base/check.h"

namespace baton {
namespace {

// Of one pump() and link: about a millisecond of memcpy, so that commands and sockets are served in
// between. A copy that is only started costs as much as a small one that is made.
constexpr int64_t kPumpBytesMax = 8 << 20;
constexpr int64_t kStartBytes = 16 << 10;

}  // namespace

Pusher::Pusher(const KvTransferConfig& config, const KvLayout& layout, std::vector<PagePool*> pools,
               std::vector<Transport*> transports, std::unique_ptr<PageHasher> hasher,
               const Clock& clock, Report report)
    : config_(config),
      layout_(layout),
      pools_(std::move(pools)),
      transports_(std::move(transports)),
      hasher_(std::move(hasher)),
      clock_(clock),
      report_(std::move(report)) {
  CHECK_EQ(layout_.groups.size(), pools_.size()) << "one pool a kv_group";
}

Pusher::~Pusher() {
  // One by one: the end of a route may bring news of another.
  while (!links_.empty()) links_.erase(links_.begin());
}

// ---- links ----

void Pusher::attach(LinkId id, const std::string& blob, Lease lease) {
  CHECK(lease != nullptr) << "link " << id << " without a lease";
  CHECK(!links_.contains(id)) << "link " << id << " attached twice";
  Result<Offer> offer = decode_offer(blob);
  Status status = offer.status();
  if (status.ok()) {
    const std::vector<PoolGeometry> ours = geometry_of(pools_);
    const bool same = std::equal(
        ours.begin(), ours.end(), offer->pools.begin(), offer->pools.end(),
        [](const PoolGeometry& a, const PoolGeometry& b) { return a.page_bytes == b.page_bytes; });
    if (!same) status = invalid_argument("offer: the peer's pages have another size than ours");
  }
  if (!status.ok()) {
    report_({.kind = MoverEvent::Kind::kAttachFailed, .link = id, .error = status.message()});
    return;
  }
  Link& link = links_[id];
  link.offer = std::move(*offer);
  link.lease = std::move(lease);
  if (try_transports(id, link)) return;
  report_({.kind = MoverEvent::Kind::kAttachFailed, .link = id, .error = link.failures});
  links_.erase(id);
}

void Pusher::note_failure(Link& link, const std::string& transport, const std::string& reason) {
  if (!link.failures.empty()) link.failures += "; ";
  link.failures += transport + ": " + reason;
}

bool Pusher::try_transports(LinkId id, Link& link) {
  for (; link.transport < transports_.size(); ++link.transport) {
    Transport& transport = *transports_[link.transport];
    const std::string name = transport.name();
    if (!config_.require.empty() && config_.require != name) continue;
    const auto endpoint = std::find_if(link.offer.endpoints.begin(), link.offer.endpoints.end(),
                                       [&name](const auto& e) { return e.transport == name; });
    if (endpoint == link.offer.endpoints.end()) {
      note_failure(link, name, "not offered by the peer");
      continue;
    }
    Result<std::unique_ptr<Route>> route =
        transport.connect(id, link.offer, endpoint->address, *this);
    if (route.ok()) {
      link.route = std::move(*route);
      return true;
    }
    note_failure(link, name, route.status().message());
  }
  if (link.failures.empty())
    link.failures = "no transport in common: kvtransfer.require is " + config_.require;
  return false;
}

void Pusher::check_measurement(Link& link, LinkId id) {
  const Measurement measured = *std::exchange(link.measured, std::nullopt);
  const std::string name = transports_[link.transport]->name();
  if (measured.gbps < config_.min_gbps) {
    link.broken =
        unavailable("measured " + std::to_string(measured.gbps) + " GB/s, want at least " +
                    std::to_string(config_.min_gbps) + " (kvtransfer.min_gbps)");
    return;
  }
  link.attached = true;
  report_({.kind = MoverEvent::Kind::kAttached,
           .link = id,
           .transport = name,
           .gbps = measured.gbps,
           .latency_us = measured.latency_us});
}

// Acts on what the route has told; returns the next link.
Pusher::Links::iterator Pusher::settle_link(Links::iterator it) {
  auto& [id, link] = *it;
  if (link.measured && !link.broken) check_measurement(link, id);
  if (!link.broken) return std::next(it);

  const Status reason = *std::exchange(link.broken, std::nullopt);
  link.route.reset();
  link.measured.reset();
  note_failure(link, transports_[link.transport]->name(), reason.message());
  if (link.detaching) {
    const LinkId detached = id;
    links_.erase(it++);
    finish_detach(detached);
    return it;
  }
  if (link.attached) {
    fail_transfers(id, reason.message());
    settle_transfers();
  } else {
    ++link.transport;
    if (try_transports(id, link)) return std::next(it);
  }
  report_({.kind = MoverEvent::Kind::kAttachFailed, .link = id, .error = link.failures});
  return links_.erase(it);
}

void Pusher::detach(LinkId id) {
  const auto it = links_.find(id);
  if (it != links_.end() && it->second.route != nullptr && !it->second.route->end()) {
    it->second.attached = false;
    it->second.measured.reset();
    it->second.detaching = true;  // route_broken follows
    return;
  }
  if (it != links_.end()) {
    it->second.route.reset();
    links_.erase(it);
  }
  finish_detach(id);
}

// REQUIRES: the route is gone.
void Pusher::finish_detach(LinkId id) {
  fail_transfers(id, "the link is gone");
  settle_transfers();
  report_({.kind = MoverEvent::Kind::kDetached, .link = id});
}

// REQUIRES: the route is gone, so nothing is in flight.
void Pusher::fail_transfers(LinkId link, const std::string& reason) {
  for (auto& [id, transfer] : transfers_) {
    if (transfer.link != link) continue;
    transfer.in_flight = 0;
    if (!transfer.ending()) transfer.error = reason;
  }
}

// ---- transfers ----

Pusher::Transfer* Pusher::find(TransferId transfer) {
  const auto it = transfers_.find(transfer);
  return it == transfers_.end() ? nullptr : &it->second;
}

void Pusher::begin(TransferId id, LinkId link, uint64_t slot_gen) {
  const auto [it, fresh] = transfers_.emplace(id, Transfer{.link = link, .slot_gen = slot_gen});
  CHECK(fresh) << "transfer " << id << " begun twice";
  const auto found = links_.find(link);
  if (found == links_.end() || !found->second.attached) {
    it->second.error = "link " + std::to_string(link) + " is not attached";
  }
}

void Pusher::finish(TransferId id, uint64_t last_step) {
  if (Transfer* transfer = find(id)) transfer->last_step = last_step;
}

void Pusher::abort(TransferId id) {
  Transfer* transfer = find(id);
  if (transfer != nullptr && !transfer->ending()) transfer->aborted = true;
}

void Pusher::push_pages(const std::vector<PushPage>& pages) {
  for (const PushPage& page : pages) {
    CHECK(page.group >= 0 && page.group < static_cast<int32_t>(pools_.size()))
        << "group " << page.group;
    add_slice(page, 0, pools_[page.group]->page_bytes(), nullptr);
  }
}

void Pusher::push_layer(const std::vector<PushPage>& pages, int32_t layer, void* after) {
  for (const PushPage& page : pages) {
    CHECK(page.group >= 0 && page.group < static_cast<int32_t>(pools_.size()))
        << "group " << page.group;
    const KvGroup& group = layout_.groups[page.group];
    const auto it = std::lower_bound(group.layers.begin(), group.layers.end(), layer);
    if (it == group.layers.end() || *it != layer) continue;
    add_slice(page, (it - group.layers.begin()) * group.layer_bytes(), group.layer_bytes(), after);
  }
}

void Pusher::add_slice(const PushPage& page, int64_t offset, int64_t bytes, void* after) {
  const PagePool& pool = *pools_[page.group];
  CHECK(page.src_page >= 0 && page.src_page < pool.num_pages()) << "page " << page.src_page;
  Transfer* transfer = find(page.transfer);
  if (transfer == nullptr || transfer->ending()) return;
  Link& link = links_.at(transfer->link);  // a transfer that is not ending has its link
  if (page.dst_page < 0 || page.dst_page >= link.offer.pools[page.group].num_pages) {
    transfer->error = "page " + std::to_string(page.dst_page) + " is outside the peer's pool";
    return;
  }
  link.queue.push_back({.transfer = page.transfer,
                        .slot_gen = transfer->slot_gen,
                        .group = page.group,
                        .dst_page = page.dst_page,
                        .offset = offset,
                        .bytes = bytes,
                        .src = pool.page(page.src_page) + offset,
                        .after = after});
  ++transfer->waiting;
  if (hasher_ == nullptr || offset + bytes != pool.page_bytes()) return;
  // Its last slice: all is written, or will be when that slice has been copied.
  after == nullptr ? hash_page(page) : transfer->to_hash.push_back(page);
}

void Pusher::hash_page(const PushPage& page) {
  ++find(page.transfer)->hashing;
  hasher_->hash(page.transfer, page.group, page.src_page, [this, page](const PagesDigest& hash) {
    Transfer& transfer = *find(page.transfer);  // the hashes of one that has ended are cancelled
    --transfer.hashing;
    transfer.digest.add(page.group, page.dst_page, hash);
  });
}

// ---- copies ----

bool Pusher::pump() {
  bool more = false;
  for (auto it = links_.begin(); it != links_.end();) it = settle_link(it);
  for (auto& entry : links_) more |= start_copies(entry.second);
  if (hasher_ != nullptr) {
    hash_what_is_copied();
    more |= hasher_->pump();
  }
  settle_transfers();
  return more;
}

bool Pusher::copied(const Transfer& transfer) const {
  return transfer.last_step && written_step_ >= *transfer.last_step && transfer.waiting == 0 &&
         transfer.in_flight == 0;
}

void Pusher::hash_what_is_copied() {
  for (auto& entry : transfers_) {
    if (!copied(entry.second) || entry.second.ending()) continue;
    for (const PushPage& page : std::exchange(entry.second.to_hash, {})) hash_page(page);
  }
}

// True: call again soon. A route may have told something while another one was ended.
bool Pusher::start_copies(Link& link) {
  if (!link.attached) return link.measured.has_value() || link.broken.has_value();
  int64_t budget = kPumpBytesMax;
  while (!link.queue.empty() && !link.broken && link.route->has_room()) {
    if (budget <= 0) return true;
    const Slice slice = link.queue.front();
    link.queue.pop_front();
    Transfer* transfer = find(slice.transfer);
    if (transfer == nullptr) continue;
    --transfer->waiting;
    if (transfer->ending()) continue;
    // A stopped process may come back here long after D has given the grant away: read the clock
    // before every copy.
    if (link.lease->load() <= clock_.now_us()) {
      transfer->error = "the lease ran out";
      continue;
    }
    ++transfer->in_flight;
    const bool complete = link.route->start(slice);
    if (complete) --transfer->in_flight;
    budget -= complete ? slice.bytes : std::min(slice.bytes, kStartBytes);
  }
  return link.broken.has_value();
}

void Pusher::settle_transfers() {
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    const auto& [id, transfer] = *it;
    const bool done = copied(transfer) && transfer.hashing == 0 && transfer.to_hash.empty();
    if (transfer.in_flight > 0 || !(done || transfer.ending())) {
      ++it;
      continue;
    }
    const auto kind = transfer.aborted         ? MoverEvent::Kind::kAborted
                      : transfer.error.empty() ? MoverEvent::Kind::kDone
                                               : MoverEvent::Kind::kFailed;
    MoverEvent event{.kind = kind, .link = transfer.link, .transfer = id, .error = transfer.error};
    if (hasher_ != nullptr) {
      hasher_->cancel(id);
      event.digest = transfer.digest.digest();
    }
    it = transfers_.erase(it);
    report_(std::move(event));
  }
}

// ---- what routes tell ----

void Pusher::route_ready(LinkId id, const Measurement& measurement) {
  if (const auto it = links_.find(id); it != links_.end()) it->second.measured = measurement;
}

void Pusher::slice_done(LinkId, TransferId id) {
  Transfer* transfer = find(id);
  CHECK(transfer != nullptr && transfer->in_flight > 0)
      << "transfer " << id << ": a copy that was not in flight";
  --transfer->in_flight;
}

void Pusher::slice_refused(LinkId link, TransferId id, const std::string& reason) {
  slice_done(link, id);
  Transfer* transfer = find(id);
  if (!transfer->ending()) transfer->error = reason;
}

void Pusher::route_broken(LinkId id, const Status& reason) {
  if (const auto it = links_.find(id); it != links_.end() && !it->second.broken)
    it->second.broken = reason;
}

}  // namespace baton
