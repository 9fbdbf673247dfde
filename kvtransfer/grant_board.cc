#include "kvtransfer/grant_board.h"

#include <algorithm>

#include "base/check.h"

namespace baton {

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
