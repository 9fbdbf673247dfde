// P and D of transport "nccl" in one process, on one handoff thread: the test's; over a NCCL of the
// test's own (nccl_fake.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/nccl.h"
#include "kvtransfer/nccl_fake.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/test_rig.h"

namespace baton {

inline constexpr LinkId kPLink = 7;
inline constexpr LinkId kDLink = 9;

struct NcclRig final : RouteOwner {
  explicit NcclRig(int64_t attach_timeout_ms = 10'000)
      : p_context{loop,
                  from.borrowed,
                  offers,
                  grants,
                  memory,
                  credentials,
                  "127.0.0.1",
                  attach_timeout_ms,
                  [](const MoverEvent&) {}},
        d_context{loop,
                  to.borrowed,
                  offers,
                  grants,
                  memory,
                  credentials,
                  "127.0.0.1",
                  attach_timeout_ms,
                  [this](MoverEvent event) { reported.push_back(std::move(event)); }},
        p(p_context, nccl, 4),
        d(d_context, nccl, 4) {
    from.fill(std::random_device()());
    offer.keys = offers.add(kDLink);
    offer.pools = geometry_of(to.borrowed);
    offer.endpoints = {{"nccl", d.endpoint()}};
  }
  ~NcclRig() override { route.reset(); }

  void connect() { route = std::move(*p.connect(kPLink, offer, d.endpoint(), *this)); }
  void attach() {
    connect();
    CHECK(run_until([this] { return ready || !broken.empty(); }) && broken.empty()) << broken;
  }
  // False after 10 s. Not everything that happens on a pair's thread wakes the loop: it looks up
  // now and then.
  bool run_until(const std::function<bool()>& reached) {
    const Stopwatch stopwatch;
    while (!reached()) {
      if (stopwatch.elapsed_us() > 10e6) return false;
      const PollLoop::Watch look = loop.after_ms(5, [] {});
      loop.poll(true);
    }
    return true;
  }
  void allow_all(uint64_t slot_gen) { grants.allow(kDLink, slot_gen, all_pages()); }
  Slice page(uint64_t slot_gen, int32_t group, int32_t src, int32_t dst) const {
    const PagePool& pool = *from.borrowed[group];
    return {.transfer = slot_gen,
            .slot_gen = slot_gen,
            .group = group,
            .dst_page = dst,
            .bytes = pool.page_bytes(),
            .src = pool.page(src)};
  }
  bool started(const Slice& slice) { return route->has_room() && !route->start(slice); }

  // RouteOwner
  void route_ready(LinkId, const Measurement& measurement) override { ready = measurement; }
  void slice_done(LinkId, TransferId) override { ++done; }
  void slice_refused(LinkId, TransferId transfer, const std::string&) override {
    refused.push_back(transfer);
  }
  void route_broken(LinkId, const Status& reason) override { broken = reason.message(); }

  FakeGpu gpu;
  FakeGpuMemory memory{gpu, HandoffMemory::Kind::kCuda};
  const std::shared_ptr<FakeNccl> nccl = std::make_shared<FakeNccl>(gpu);
  TestPools from;
  TestPools to;
  PollLoop loop;
  OfferBook offers;
  GrantBoard grants;
  CredentialFiles credentials{LinkConfig{}};
  Offer offer;
  std::vector<MoverEvent> reported;  // by D
  std::optional<Measurement> ready;
  int32_t done = 0;
  std::vector<TransferId> refused;
  std::string broken;
  const TransportContext p_context;
  const TransportContext d_context;
  NcclTransport p;
  NcclTransport d;
  std::unique_ptr<Route> route;
};

}  // namespace baton
