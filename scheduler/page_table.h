// The pages of one branch (see branch.h) and where they lie in its sequence. Used by the scheduler;
// same thread.
#pragma once

#include <cstdint>
#include <vector>

#include "model/engine.h"
#include "model/kv_layout.h"
#include "scheduler/page_ledger.h"

namespace baton {

// Per kv_group: page i holds positions [i * page_tokens, (i + 1) * page_tokens). Pages that have
// left the window, or were never needed, are empty references. Borrows the layout.
class PageTable {
 public:
  explicit PageTable(const KvLayout& layout) : layout_(&layout), groups_(layout.groups.size()) {}

  PageTable share() const;  // the same pages, referenced once more

  // Appends a row of pages that starts at `first_token`; positions before it that have no page yet
  // stay without one. REQUIRES: first_token is where the table ends or later, a whole page.
  void append(int32_t group, int32_t first_token, std::vector<PageRef> pages);

  // The page of a position, or an empty reference.
  const PageRef& at(int32_t group, int32_t position) const;
  // Puts `page` there and returns what was there before.
  PageRef replace(int32_t group, int32_t position, PageRef page);

  // Positions [0, end_token(group)) have places.
  int32_t end_token(int32_t group) const;
  // Ids for positions [0, end), -1 where there is no page.
  std::vector<int32_t> page_ids(int32_t group, int32_t end) const;
  std::vector<std::vector<int32_t>> block_tables(int32_t end) const;

  // Drops the pages that lie wholly before `position`.
  void drop_before(int32_t group, int32_t position);
  // Everything, in order of position, leaving the table empty.
  std::vector<std::vector<PageRef>> take_all();

 private:
  const KvLayout* layout_;
  std::vector<std::vector<PageRef>> groups_;
  std::vector<int32_t> dropped_{std::vector<int32_t>(groups_.size(), 0)};  // leading empty places
};

// Drops references, the last positions first: the start of a sequence, which more requests share,
// is to be evicted last.
void drop_pages(std::vector<std::vector<PageRef>> pages);

// The first position that a query at `position`, or any later one, sees.
int32_t first_visible(const KvGroup& group, int32_t position);

}  // namespace baton
