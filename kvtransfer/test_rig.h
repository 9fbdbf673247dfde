// What the tests of this folder share: a small layout of two kv_groups, pools with known bytes, a
// log of events that can be waited for.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kvtransfer/page_mover.h"

namespace baton {

inline constexpr int32_t kTestPages = 24;

// Groups {0, 2} and {1, 3, 4}; a layer's slice is 32 KiB; 8 pages a slab.
inline KvLayout test_layout() {
  KvGroup even{.layers = {0, 2}, .num_kv_heads = 4, .head_dim = 64, .page_tokens = 16};
  KvGroup odd = even;
  odd.layers = {1, 3, 4};
  return {{even, odd}};
}

struct TestPools {
  TestPools() : layout(test_layout()) {
    for (const KvGroup& group : layout.groups) {
      owned.push_back(std::make_unique<PagePool>(group, kTestPages, 8 * group.page_bytes()));
      borrowed.push_back(owned.back().get());
    }
  }
  void fill(uint64_t seed) {
    uint64_t word = seed;  // Knuth's MMIX generator: cheap, also under a sanitizer
    for (PagePool* pool : borrowed) {
      auto* words = reinterpret_cast<uint64_t*>(pool->base());
      for (int64_t i = 0; i < pool->num_pages() * pool->page_bytes() / 8; ++i)
        words[i] = word = word * 6364136223846793005 + 1442695040888963407;
    }
  }
  bool all_zero() const {
    for (int32_t page = 0; page < kTestPages; ++page) {
      if (!is_zero(0, page) || !is_zero(1, page)) return false;
    }
    return true;
  }
  bool is_zero(int32_t group, int32_t page) const {
    const PagePool& pool = *borrowed[group];
    const std::vector<std::byte> zero(static_cast<size_t>(pool.page_bytes()));
    return std::memcmp(pool.page(page), zero.data(), zero.size()) == 0;
  }
  KvLayout layout;
  std::vector<std::unique_ptr<PagePool>> owned;
  std::vector<PagePool*> borrowed;
};

inline bool same_page(const TestPools& a, const TestPools& b, const PushPage& page) {
  const PagePool& from = *a.borrowed[page.group];
  const PagePool& to = *b.borrowed[page.group];
  return std::memcmp(from.page(page.src_page), to.page(page.dst_page),
                     static_cast<size_t>(from.page_bytes())) == 0;
}

// Thread-safe sink.
class EventLog {
 public:
  void add(MoverEvent event) {
    {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    added_.notify_all();
  }
  // The next event of that kind, taken out; waits up to 10 s. Kind kAttachFailed with error
  // "timeout" if none comes.
  MoverEvent wait(MoverEvent::Kind kind) {
    return wait_if([kind](const MoverEvent& event) { return event.kind == kind; });
  }
  MoverEvent wait_any() {
    return wait_if([](const MoverEvent&) { return true; });
  }
  std::vector<MoverEvent> all() const {
    std::lock_guard lock(mutex_);
    return events_;
  }
  PageMover::Sink sink() {
    return [this](MoverEvent event) { add(std::move(event)); };
  }

 private:
  template <typename Wanted>
  MoverEvent wait_if(Wanted wanted) {
    std::unique_lock lock(mutex_);
    MoverEvent found{.kind = MoverEvent::Kind::kAttachFailed, .error = "timeout"};
    added_.wait_for(lock, std::chrono::seconds(10), [&] {
      const auto it = std::find_if(events_.begin(), events_.end(), wanted);
      if (it == events_.end()) return false;
      found = *it;
      events_.erase(it);
      return true;
    });
    return found;
  }

  mutable std::mutex mutex_;
  std::condition_variable added_;
  std::vector<MoverEvent> events_;
};

// Of both groups.
inline std::vector<std::vector<int32_t>> all_pages() {
  std::vector<int32_t> pages(kTestPages);
  std::iota(pages.begin(), pages.end(), 0);
  return {pages, pages};
}

inline std::shared_ptr<std::atomic<int64_t>> long_lease() {
  return std::make_shared<std::atomic<int64_t>>(INT64_MAX);
}

// One worker's end.
struct TestEnd {
  explicit TestEnd(const KvTransferConfig& config, const Clock& clock)
      : mover(make_page_mover(config, pools.layout, pools.borrowed, "127.0.0.1", clock,
                              log.sink())) {}
  TestPools pools;
  EventLog log;
  std::unique_ptr<PageMover> mover;
};

// Two workers in one process: p pushes to d over P's link 7, which D calls 9.
struct TestPair {
  explicit TestPair(const std::string& transport, KvTransferConfig config = {})
      : p(with(config, transport), clock), d(with(config, transport), clock) {
    p.pools.fill(std::random_device()());
  }
  static KvTransferConfig with(KvTransferConfig config, const std::string& transport) {
    config.transports = transport;
    return config;
  }
  MoverEvent attach() {
    p.mover->attach(kPLink, d.mover->offer(kDLink), lease);
    return p.log.wait(MoverEvent::Kind::kAttached);
  }
  void allow_all(uint64_t slot_gen) { d.mover->allow(kDLink, slot_gen, all_pages()); }
  // One step that completes `pages`, all its layers written.
  void run_step(uint64_t step, const std::vector<PushPage>& pages) {
    StepInput input;
    input.step = step;
    input.pushes = pages;
    for (int32_t layer = 0; layer < 5; ++layer) p.mover->layer_written(input, layer);
  }
  static constexpr LinkId kPLink = 7;
  static constexpr LinkId kDLink = 9;
  SystemClock clock;
  std::shared_ptr<std::atomic<int64_t>> lease = long_lease();
  TestEnd p;
  TestEnd d;
};

}  // namespace baton
