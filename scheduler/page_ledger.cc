// The page ledger: states, reference counts, the free stack and the LRU list of cached pages. The
// list is threaded through the pages themselves, so every operation on one page is O(1).
#include "scheduler/page_ledger.h"

#include <utility>

#include "base/check.h"

namespace baton {

PageRef::PageRef(PageRef&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      group_(other.group_),
      page_id_(std::exchange(other.page_id_, -1)) {}

PageRef& PageRef::operator=(PageRef&& other) noexcept {
  if (this != &other) {
    reset();
    ledger_ = std::exchange(other.ledger_, nullptr);
    group_ = other.group_;
    page_id_ = std::exchange(other.page_id_, -1);
  }
  return *this;
}

PageRef::~PageRef() {
  reset();
}

void PageRef::reset() {
  if (ledger_ != nullptr) ledger_->drop_reference(group_, page_id_);
  ledger_ = nullptr;
  page_id_ = -1;
}

PageRef PageRef::share() const {
  CHECK(ledger_ != nullptr) << "an empty PageRef cannot be shared";
  ledger_->add_reference(group_, page_id_);
  return PageRef(ledger_, group_, page_id_);
}

PageLedger::PageLedger(const std::vector<int32_t>& pages_per_group) {
  for (int32_t num_pages : pages_per_group) {
    CHECK_GE(num_pages, 0) << "a kv_group needs a number of pages";
    Group group;
    group.pages.resize(static_cast<size_t>(num_pages));
    for (int32_t id = num_pages - 1; id >= 0; --id) group.free.push_back(id);
    group.count[static_cast<size_t>(PageState::kFree)] = num_pages;
    groups_.push_back(std::move(group));
  }
}

PageLedger::~PageLedger() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t id = 0; id < groups_[g].pages.size(); ++id) {
      CHECK_EQ(groups_[g].pages[id].references, 0)
          << "page " << id << " of kv_group " << g << " is still referenced at the end";
    }
  }
}

PageLedger::Page& PageLedger::page(int32_t group, int32_t page_id) {
  return const_cast<Page&>(std::as_const(*this).page(group, page_id));
}

const PageLedger::Page& PageLedger::page(int32_t group, int32_t page_id) const {
  CHECK(group >= 0 && group < num_groups()) << "kv_group " << group << " of " << num_groups();
  const std::vector<Page>& pages = groups_[static_cast<size_t>(group)].pages;
  CHECK(page_id >= 0 && page_id < static_cast<int32_t>(pages.size()))
      << "page " << page_id << " of " << pages.size() << " in kv_group " << group;
  return pages[static_cast<size_t>(page_id)];
}

void PageLedger::change_state(Group& group, Page& page, PageState state) {
  --group.count[static_cast<size_t>(page.state)];
  ++group.count[static_cast<size_t>(state)];
  page.state = state;
}

void PageLedger::lru_append(Group& group, int32_t page_id) {
  Page& page = group.pages[static_cast<size_t>(page_id)];
  page.lru_previous = group.lru_newest;
  page.lru_next = -1;
  if (group.lru_newest >= 0) {
    group.pages[static_cast<size_t>(group.lru_newest)].lru_next = page_id;
  } else {
    group.lru_oldest = page_id;
  }
  group.lru_newest = page_id;
}

void PageLedger::lru_remove(Group& group, int32_t page_id) {
  Page& page = group.pages[static_cast<size_t>(page_id)];
  if (page.lru_previous >= 0) {
    group.pages[static_cast<size_t>(page.lru_previous)].lru_next = page.lru_next;
  } else {
    group.lru_oldest = page.lru_next;
  }
  if (page.lru_next >= 0) {
    group.pages[static_cast<size_t>(page.lru_next)].lru_previous = page.lru_previous;
  } else {
    group.lru_newest = page.lru_previous;
  }
  page.lru_previous = page.lru_next = -1;
}

int32_t PageLedger::available(int32_t group) const {
  const Group& g = groups_.at(static_cast<size_t>(group));
  return static_cast<int32_t>(g.count[static_cast<size_t>(PageState::kFree)] +
                              g.count[static_cast<size_t>(PageState::kCached)]);
}

// REQUIRES: available(group) > 0.
int32_t PageLedger::pop_page(int32_t group) {
  Group& g = groups_[static_cast<size_t>(group)];
  if (!g.free.empty()) {
    const int32_t page_id = g.free.back();
    g.free.pop_back();
    return page_id;
  }
  const int32_t page_id = g.lru_oldest;
  lru_remove(g, page_id);
  g.pages[static_cast<size_t>(page_id)].cacheable = false;
  if (listener_ != nullptr) listener_->evicted(group, page_id);
  return page_id;
}

std::vector<PageRef> PageLedger::take(int32_t group, int32_t count, PageState state) {
  CHECK(state == PageState::kUsed || state == PageState::kGranted)
      << "pages are taken as used or granted, not as state " << static_cast<int>(state);
  std::vector<PageRef> taken;
  if (available(group) < count) return taken;
  taken.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    const int32_t page_id = pop_page(group);
    Page& taken_page = page(group, page_id);
    change_state(groups_[static_cast<size_t>(group)], taken_page, state);
    taken_page.references = 1;
    taken.push_back(PageRef(this, group, page_id));
  }
  return taken;
}

PageRef PageLedger::reference(int32_t group, int32_t page_id) {
  Page& hit = page(group, page_id);
  if (hit.state == PageState::kCached) {
    lru_remove(groups_[static_cast<size_t>(group)], page_id);
    change_state(groups_[static_cast<size_t>(group)], hit, PageState::kUsed);
  }
  CHECK(hit.state == PageState::kUsed)
      << "page " << page_id << " of kv_group " << group << " is in state "
      << static_cast<int>(hit.state) << ", want cached or used";
  ++hit.references;
  return PageRef(this, group, page_id);
}

void PageLedger::add_reference(int32_t group, int32_t page_id) {
  ++page(group, page_id).references;
}

void PageLedger::drop_reference(int32_t group, int32_t page_id) {
  Group& g = groups_[static_cast<size_t>(group)];
  Page& dropped = g.pages[static_cast<size_t>(page_id)];
  CHECK_GT(dropped.references, 0) << "page " << page_id << " of kv_group " << group;
  if (--dropped.references > 0) return;
  if (dropped.cacheable) {
    change_state(g, dropped, PageState::kCached);
    lru_append(g, page_id);
  } else {
    change_state(g, dropped, PageState::kFree);
    g.free.push_back(page_id);
  }
}

void PageLedger::set_state(const PageRef& ref, PageState state) {
  Page& changed = page(ref.group(), ref.page_id());
  CHECK(changed.state == PageState::kGranted &&
        (state == PageState::kUsed || state == PageState::kQuarantined))
      << "page " << ref.page_id() << " of kv_group " << ref.group() << " cannot go from state "
      << static_cast<int>(changed.state) << " to " << static_cast<int>(state);
  change_state(groups_[static_cast<size_t>(ref.group())], changed, state);
}

PageState PageLedger::state(int32_t group, int32_t page_id) const {
  return page(group, page_id).state;
}

void PageLedger::set_cacheable(int32_t group, int32_t page_id, bool cacheable) {
  Page& changed = page(group, page_id);
  CHECK(changed.state == PageState::kUsed || (changed.state == PageState::kCached && !cacheable))
      << "page " << page_id << " of kv_group " << group << " is in state "
      << static_cast<int>(changed.state) << ", want used";
  changed.cacheable = cacheable;
  if (changed.state == PageState::kCached) {
    Group& g = groups_[static_cast<size_t>(group)];
    lru_remove(g, page_id);
    change_state(g, changed, PageState::kFree);
    g.free.push_back(page_id);
  }
}

bool PageLedger::writable(const PageRef& ref) const {
  const Page& held = page(ref.group(), ref.page_id());
  return held.references == 1 && !held.cacheable;
}

PageCounts PageLedger::counts(int32_t group) const {
  const Group& g = groups_.at(static_cast<size_t>(group));
  PageCounts counts;
  counts.free = g.count[static_cast<size_t>(PageState::kFree)];
  counts.cached = g.count[static_cast<size_t>(PageState::kCached)];
  counts.used = g.count[static_cast<size_t>(PageState::kUsed)];
  counts.granted = g.count[static_cast<size_t>(PageState::kGranted)];
  counts.quarantined = g.count[static_cast<size_t>(PageState::kQuarantined)];
  counts.total = static_cast<int64_t>(g.pages.size());
  CHECK_EQ(counts.free + counts.cached + counts.used + counts.granted + counts.quarantined,
           counts.total)
      << "the states of kv_group " << group << " sum to the pool";
  return counts;
}

}  // namespace baton
