// Who may use which page. Every page of every kv_group is in exactly one state; the counts always
// sum to the pool. Owned by the worker's loop; not thread-safe. The memory itself is
// model/page_pool.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/messages.h"

namespace baton {

class PageLedger;

enum class PageState : uint8_t { kFree, kCached, kUsed, kGranted, kQuarantined };

// One reference to one page; gives it back on destruction. Invariant: as long as a PageRef lives,
// nobody else can be given the page. The ledger must outlive it.
class PageRef {
 public:
  PageRef() = default;
  PageRef(PageRef&& other) noexcept;
  PageRef& operator=(PageRef&& other) noexcept;
  ~PageRef();

  PageRef share() const;  // a second reference to the same page
  int32_t group() const { return group_; }
  int32_t page_id() const { return page_id_; }
  explicit operator bool() const { return ledger_ != nullptr; }

 private:
  friend class PageLedger;
  PageRef(PageLedger* ledger, int32_t group, int32_t page_id)
      : ledger_(ledger), group_(group), page_id_(page_id) {}
  void reset();

  PageLedger* ledger_ = nullptr;
  int32_t group_ = 0;
  int32_t page_id_ = -1;
};

// Told when a cached page (no references) is taken for something else, so that the prefix cache can
// drop its entry.
class EvictionListener {
 public:
  virtual ~EvictionListener() = default;
  virtual void evicted(int32_t group, int32_t page_id) = 0;
};

class PageLedger {
 public:
  explicit PageLedger(const std::vector<int32_t>& pages_per_group);
  ~PageLedger();  // CHECKs that every page is home: no reference lives
  PageLedger(const PageLedger&) = delete;
  PageLedger& operator=(const PageLedger&) = delete;

  void set_eviction_listener(EvictionListener* listener) { listener_ = listener; }  // borrowed

  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  // Free, plus cached ones that nobody references (least recently used ones are evicted first).
  int32_t available(int32_t group) const;
  // `count` pages in `state` (kUsed or kGranted), or an empty vector when fewer are available
  // (count > 0). All or nothing.
  std::vector<PageRef> take(int32_t group, int32_t count, PageState state = PageState::kUsed);
  // A reference to a page that is cached or used: a prefix hit.
  PageRef reference(int32_t group, int32_t page_id);

  // Changes the state of a referenced page: granted -> used (COMMIT), granted -> quarantined
  // (timer, cancel, lost link). What leaves quarantine simply drops its PageRef.
  void set_state(const PageRef& page, PageState state);
  PageState state(int32_t group, int32_t page_id) const;

  // A cacheable page becomes kCached instead of kFree when its last reference goes; in LRU order
  // of that moment. Its contents are final: see writable().
  void set_cacheable(int32_t group, int32_t page_id, bool cacheable);

  // Nobody else references the page and no prefix entry names it: its holder may write to it.
  bool writable(const PageRef& page) const;

  PageCounts counts(int32_t group) const;

 private:
  friend class PageRef;

  struct Page {
    PageState state = PageState::kFree;
    bool cacheable = false;
    int32_t references = 0;
    int32_t lru_previous = -1;  // while kCached
    int32_t lru_next = -1;
  };

  struct Group {
    std::vector<Page> pages;
    std::vector<int32_t> free;  // a stack of page ids
    int32_t lru_oldest = -1;
    int32_t lru_newest = -1;
    int64_t count[5] = {};  // by PageState
  };

  Page& page(int32_t group, int32_t page_id);
  const Page& page(int32_t group, int32_t page_id) const;
  void change_state(Group& group, Page& page, PageState state);
  void lru_append(Group& group, int32_t page_id);
  void lru_remove(Group& group, int32_t page_id);
  int32_t pop_page(int32_t group);
  void add_reference(int32_t group, int32_t page_id);
  void drop_reference(int32_t group, int32_t page_id);

  std::vector<Group> groups_;
  EvictionListener* listener_ = nullptr;
};

}  // namespace baton
