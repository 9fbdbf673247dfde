#include "kvtransfer/grant_board.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace baton {

Status check_slice(const std::vector<PagePool*>& pools, int32_t group, int32_t page, int64_t offset,
                   int64_t bytes) {
  const auto got_want = [](const char* subject, int64_t got, int64_t least, int64_t most) {
    return invalid_argument(std::string("slice: got ") + subject + " " + std::to_string(got) +
                            ", want " + std::to_string(least) + " to " + std::to_string(most));
  };
  const auto groups = static_cast<int32_t>(pools.size());
  if (group < 0 || group >= groups) return got_want("kv_group", group, 0, groups - 1);
  const PagePool& pool = *pools[static_cast<size_t>(group)];
  if (page < 0 || page >= pool.num_pages()) return got_want("page", page, 0, pool.num_pages() - 1);
  if (offset < 0 || offset >= pool.page_bytes())
    return got_want("offset", offset, 0, pool.page_bytes() - 1);
  const int64_t left_bytes = pool.page_bytes() - offset;
  if (bytes <= 0 || bytes > left_bytes) return got_want("bytes", bytes, 1, left_bytes);
  return {};
}

void GrantBoard::allow(LinkId link, uint64_t slot_gen,
                       std::vector<std::vector<int32_t>> pages_per_group) {
  for (std::vector<int32_t>& pages : pages_per_group) std::sort(pages.begin(), pages.end());
  std::lock_guard lock(mutex_);
  const bool fresh = grants_.emplace(slot_gen, Grant{link, std::move(pages_per_group)}).second;
  CHECK(fresh) << "slot_gen " << slot_gen << " allowed twice";
}

void GrantBoard::disallow(uint64_t slot_gen) {
  std::lock_guard lock(mutex_);
  grants_.erase(slot_gen);
}

GrantBoard::Verdict GrantBoard::judge(LinkId link, uint64_t slot_gen, int32_t group,
                                      int32_t page) const {
  const auto it = grants_.find(slot_gen);
  if (it == grants_.end()) return Verdict::kGivenUp;
  const Grant& grant = it->second;
  if (grant.link != link || group < 0 || group >= static_cast<int32_t>(grant.pages.size()))
    return Verdict::kForbidden;
  const std::vector<int32_t>& pages = grant.pages[group];
  return std::binary_search(pages.begin(), pages.end(), page) ? Verdict::kStored
                                                              : Verdict::kForbidden;
}

}  // namespace baton
