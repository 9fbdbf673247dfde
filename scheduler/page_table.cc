// A branch's pages by position.
#include "scheduler/page_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

int32_t first_visible(const KvGroup& group, int32_t position) {
  return group.window == 0 ? 0 : std::max(0, position - group.window + 1);
}

void drop_pages(std::vector<std::vector<PageRef>> pages) {
  for (std::vector<PageRef>& group : pages) {
    while (!group.empty()) group.pop_back();
  }
}

PageTable PageTable::share() const {
  PageTable copy(*layout_);
  copy.dropped_ = dropped_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const PageRef& page : groups_[g]) {
      copy.groups_[g].push_back(page ? page.share() : PageRef());
    }
  }
  return copy;
}

void PageTable::append(int32_t group, int32_t first_token, std::vector<PageRef> pages) {
  std::vector<PageRef>& row = groups_[static_cast<size_t>(group)];
  const int32_t page_tokens = layout_->groups[static_cast<size_t>(group)].page_tokens;
  CHECK(first_token >= end_token(group) && first_token % page_tokens == 0)
      << "pages from position " << first_token << " after a table that ends at " << end_token(group)
      << ", pages of " << page_tokens << " tokens";
  row.resize(static_cast<size_t>(first_token / page_tokens));
  std::move(pages.begin(), pages.end(), std::back_inserter(row));
}

const PageRef& PageTable::at(int32_t group, int32_t position) const {
  static const PageRef kNone;
  const std::vector<PageRef>& row = groups_[static_cast<size_t>(group)];
  const auto index =
      static_cast<size_t>(position / layout_->groups[static_cast<size_t>(group)].page_tokens);
  return index < row.size() ? row[index] : kNone;
}

PageRef PageTable::replace(int32_t group, int32_t position, PageRef page) {
  std::vector<PageRef>& row = groups_[static_cast<size_t>(group)];
  const auto index =
      static_cast<size_t>(position / layout_->groups[static_cast<size_t>(group)].page_tokens);
  if (index >= row.size()) row.resize(index + 1);
  return std::exchange(row[index], std::move(page));
}

int32_t PageTable::end_token(int32_t group) const {
  return static_cast<int32_t>(groups_[static_cast<size_t>(group)].size()) *
         layout_->groups[static_cast<size_t>(group)].page_tokens;
}

std::vector<int32_t> PageTable::page_ids(int32_t group, int32_t end) const {
  const std::vector<PageRef>& row = groups_[static_cast<size_t>(group)];
  const int32_t count = layout_->groups[static_cast<size_t>(group)].pages_for(end);
  std::vector<int32_t> ids(static_cast<size_t>(count), -1);
  const size_t known = std::min(ids.size(), row.size());
  for (size_t i = 0; i < known; ++i) ids[i] = row[i].page_id();
  return ids;
}

std::vector<std::vector<int32_t>> PageTable::block_tables(int32_t end) const {
  std::vector<std::vector<int32_t>> tables;
  for (size_t g = 0; g < groups_.size(); ++g) {
    tables.push_back(page_ids(static_cast<int32_t>(g), end));
  }
  return tables;
}

void PageTable::drop_before(int32_t group, int32_t position) {
  std::vector<PageRef>& row = groups_[static_cast<size_t>(group)];
  const int32_t page_tokens = layout_->groups[static_cast<size_t>(group)].page_tokens;
  int32_t& dropped = dropped_[static_cast<size_t>(group)];
  for (; (dropped + 1) * page_tokens <= position && dropped < static_cast<int32_t>(row.size());
       ++dropped) {
    row[static_cast<size_t>(dropped)] = PageRef();
  }
}

std::vector<std::vector<PageRef>> PageTable::take_all() {
  std::vector<std::vector<PageRef>> all(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (PageRef& page : groups_[g]) {
      if (page) all[g].push_back(std::move(page));
    }
    groups_[g].clear();
    dropped_[g] = 0;
  }
  return all;
}

}  // namespace baton
