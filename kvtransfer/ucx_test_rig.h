// Both ends of transport "ucx" with puts in one thread, for its tests: its conversation over UCX's
// shared memory, its puts by UCX where it spells them out in messages, or by functions of the
// test's in their place.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kvtransfer/gpu_fake.h"
#include "kvtransfer/pusher.h"
#include "kvtransfer/test_rig.h"
#include "kvtransfer/ucx_put.h"

namespace baton {

// Puts and flushes that end when the test says so, in place of UCX's.
struct HeldRma {
  struct Request {
    ucp_send_nbx_callback_t callback;
    void* user_data;
    std::function<void()> store;
    bool flush;
  };
  static inline std::deque<Request> requests;
  static inline bool hold = false;              // else all end at once
  static inline ucs_status_t refusal = UCS_OK;  // of the next put or flush; UCS_OK: none

  static ucs_status_ptr_t put(ucp_ep_h, const void* src, size_t bytes, uint64_t to, ucp_rkey_h,
                              const ucp_request_param_t* params) {
    return add(*params, false, [=] { std::memcpy(reinterpret_cast<void*>(to), src, bytes); });
  }
  static ucs_status_ptr_t flush(ucp_ep_h, const ucp_request_param_t* params) {
    return add(*params, true, [] {});
  }
  // The oldest one's.
  static void end(ucs_status_t status) {
    const Request request = requests.front();
    requests.pop_front();
    if (status == UCS_OK) request.store();
    request.callback(&requests, status, request.user_data);
  }
  static void end_all(ucs_status_t status) {
    while (!requests.empty()) end(status);
  }
  static size_t puts() {
    return static_cast<size_t>(std::count_if(requests.begin(), requests.end(),
                                             [](const Request& one) { return !one.flush; }));
  }

 private:
  static ucs_status_ptr_t add(const ucp_request_param_t& params, bool flush,
                              std::function<void()> store) {
    if (refusal != UCS_OK) return UCS_STATUS_PTR(std::exchange(refusal, UCS_OK));
    if (!hold) {
      store();
      return nullptr;
    }
    requests.push_back({params.cb.send, params.user_data, std::move(store), flush});
    return &requests;
  }
};

inline std::shared_ptr<const UcxLibrary> real_ucx() {
  Result<std::shared_ptr<const UcxLibrary>> library = load_ucx();
  if (!library.ok()) throw std::runtime_error(library.status().message());
  return *library;
}

// UCX without its puts.
inline std::shared_ptr<const UcxLibrary> held_ucx() {
  UcxLibrary library = *real_ucx();
  library.put_nbx = &HeldRma::put;
  library.ep_flush_nbx = &HeldRma::flush;
  const static auto real_free = library.request_free;
  library.request_free = [](void* request) {
    if (request != &HeldRma::requests) real_free(request);
  };
  HeldRma::requests.clear();
  HeldRma::hold = false;
  HeldRma::refusal = UCS_OK;
  return std::make_shared<const UcxLibrary>(library);
}

struct UcxTestEnd {
  explicit UcxTestEnd(PollLoop& loop, UcxPutTransport::Options options, int64_t attach_timeout_ms)
      : context{loop,
                pools.borrowed,
                offers,
                grants,
                memory,
                credentials,
                "",
                attach_timeout_ms,
                [this](MoverEvent event) { events.push_back(std::move(event)); },
                ""} {
    options.transports = "posix,self";
    options.emulated_puts = true;
    Result<std::unique_ptr<UcxPutTransport>> made = UcxPutTransport::make(context, options);
    if (!made.ok()) throw std::runtime_error(made.status().message());
    transport = std::move(*made);
  }
  TestPools pools;
  OfferBook offers;
  GrantBoard grants;
  FakeGpu gpu;
  FakeGpuMemory memory{gpu, HandoffMemory::Kind::kHost};
  CredentialFiles credentials{LinkConfig{}};
  std::vector<MoverEvent> events;
  const TransportContext context;
  std::unique_ptr<UcxPutTransport> transport;
};

// P pushes to D over link 7, which D calls 9.
struct UcxTestPair {
  explicit UcxTestPair(const std::shared_ptr<const UcxLibrary>& library,
                       int64_t attach_timeout_ms = 10'000)
      : UcxTestPair({.library = library}, {.library = library}, attach_timeout_ms) {}
  UcxTestPair(const UcxPutTransport::Options& of_p, const UcxPutTransport::Options& of_d,
              int64_t attach_timeout_ms)
      : p(loop, of_p, attach_timeout_ms), d(loop, of_d, attach_timeout_ms) {
    p.pools.fill(std::random_device()());
    config.attach_timeout_ms = attach_timeout_ms;
    pusher = std::make_unique<Pusher>(
        config, p.pools.layout, p.pools.borrowed, std::vector<Transport*>{p.transport.get()},
        nullptr, clock, [this](MoverEvent event) { log.push_back(std::move(event)); });
  }
  std::string offer() {
    Offer offer{.keys = d.offers.add(9), .pools = geometry_of(d.pools.borrowed), .endpoints = {}};
    offer.endpoints.push_back({"ucx", d.transport->endpoint()});
    return encode_offer(offer);
  }
  void turn() {
    const bool more = pusher->pump();
    loop.poll(!more);
  }
  // Until `ready`, for at most 20 s. The timer keeps the loop from sleeping for ever.
  void until(const std::function<bool()>& ready) {
    const Stopwatch waited;
    while (!ready() && waited.elapsed_us() < 20e6) {
      const PollLoop::Watch tick = loop.after_ms(10, [] {});
      turn();
    }
    if (!ready()) throw std::runtime_error("waited 20 s in vain");
  }
  MoverEvent next() {
    until([this] { return !log.empty(); });
    MoverEvent event = log.front();
    log.pop_front();
    return event;
  }
  MoverEvent attach() {
    pusher->attach(7, offer(), long_lease());
    return next();
  }
  void rest() {  // nothing more happens by itself
    for (int32_t i = 0; i < 20; ++i) {
      const PollLoop::Watch tick = loop.after_ms(1, [] {});
      turn();
    }
  }

  PollLoop loop;
  SystemClock clock;
  KvTransferConfig config;
  UcxTestEnd p, d;
  std::deque<MoverEvent> log;
  std::unique_ptr<Pusher> pusher;
};

}  // namespace baton
