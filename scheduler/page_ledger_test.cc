// States, counts, LRU eviction and sharing of pages.
#include "scheduler/page_ledger.h"

#include <random>
#include <utility>

#include "tests/doctest.h"

namespace baton {
namespace {

int64_t sum(const PageCounts& counts) {
  return counts.free + counts.cached + counts.used + counts.granted + counts.quarantined;
}

struct EvictionLog final : EvictionListener {
  std::vector<int32_t> pages;
  void evicted(int32_t /*group*/, int32_t page_id) override { pages.push_back(page_id); }
};

TEST_CASE("take is all or nothing and references give pages back") {
  PageLedger ledger({4, 2});
  CHECK(ledger.take(1, 3).empty());
  CHECK(ledger.counts(1).used == 0);
  {
    std::vector<PageRef> pages = ledger.take(0, 3);
    REQUIRE(pages.size() == 3);
    CHECK(ledger.counts(0).used == 3);
    CHECK(ledger.available(0) == 1);
    PageRef second = pages[0].share();
    pages.clear();
    CHECK(ledger.counts(0).used == 1);  // counted once, still referenced
    CHECK(ledger.writable(second));
  }
  CHECK(ledger.counts(0) == PageCounts{4, 0, 0, 0, 0, 4});
}

TEST_CASE("moved references are counted once") {
  PageLedger ledger({2});
  std::vector<PageRef> pages = ledger.take(0, 2);
  PageRef moved = std::move(pages[0]);
  CHECK_FALSE(pages[0]);
  moved = std::move(pages[1]);  // gives the first page back
  CHECK(ledger.counts(0).free == 1);
}

TEST_CASE("granted pages become used or quarantined, then go home") {
  PageLedger ledger({3});
  std::vector<PageRef> pages = ledger.take(0, 2, PageState::kGranted);
  CHECK(ledger.counts(0) == PageCounts{1, 0, 0, 2, 0, 3});
  ledger.set_state(pages[0], PageState::kUsed);
  ledger.set_state(pages[1], PageState::kQuarantined);
  CHECK(ledger.counts(0) == PageCounts{1, 0, 1, 0, 1, 3});
  CHECK(ledger.state(0, pages[1].page_id()) == PageState::kQuarantined);
  pages.clear();
  CHECK(ledger.counts(0).free == 3);
}

TEST_CASE("cacheable pages stay until they are the oldest and needed") {
  PageLedger ledger({3});
  EvictionLog log;
  ledger.set_eviction_listener(&log);
  std::vector<PageRef> pages = ledger.take(0, 3);
  for (const PageRef& page : pages) ledger.set_cacheable(0, page.page_id(), true);
  CHECK_FALSE(ledger.writable(pages[0]));
  const int32_t first = pages[0].page_id();
  const int32_t second = pages[1].page_id();
  pages.clear();
  CHECK(ledger.counts(0).cached == 3);
  CHECK(ledger.available(0) == 3);
  { PageRef hit = ledger.reference(0, first); }  // now the newest
  std::vector<PageRef> taken = ledger.take(0, 1);
  CHECK(log.pages == std::vector<int32_t>{second});
  CHECK(ledger.writable(taken[0]));
  ledger.set_cacheable(0, first, false);
  CHECK(ledger.counts(0) == PageCounts{1, 1, 1, 0, 0, 3});
}

TEST_CASE("random use: the counts always sum to the pool") {
  const uint32_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  PageLedger ledger({16});
  std::vector<PageRef> held;
  for (int i = 0; i < 5000; ++i) {
    const uint32_t action = random() % 5;
    if (action == 0) {
      const PageState state = random() % 2 == 0 ? PageState::kUsed : PageState::kGranted;
      for (PageRef& page : ledger.take(0, 1 + static_cast<int32_t>(random() % 4), state)) {
        held.push_back(std::move(page));
      }
    } else if (!held.empty()) {
      const size_t which = random() % held.size();
      const PageState state = ledger.state(0, held[which].page_id());
      if (action == 1 && state == PageState::kUsed) held.push_back(held[which].share());
      if (action == 2 && state == PageState::kGranted) {
        ledger.set_state(held[which],
                         random() % 2 == 0 ? PageState::kUsed : PageState::kQuarantined);
      }
      if (action == 3 && state == PageState::kUsed) {
        ledger.set_cacheable(0, held[which].page_id(), random() % 3 != 0);
      }
      if (action == 4) held.erase(held.begin() + static_cast<int64_t>(which));
    }
    const PageCounts counts = ledger.counts(0);
    REQUIRE(sum(counts) == counts.total);
    REQUIRE(ledger.available(0) == counts.free + counts.cached);
  }
}

}  // namespace
}  // namespace baton
