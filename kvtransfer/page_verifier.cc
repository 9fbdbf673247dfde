#include "kvtransfer/page_verifier.h"

#include "base/check.h"

namespace baton {

void PageVerifier::verify(uint64_t slot_gen,
                          const std::vector<std::vector<int32_t>>& pages_per_group,
                          const PagesDigest& want) {
  const auto [it, fresh] = checks_.try_emplace(slot_gen, Check{.want = want});
  CHECK(fresh) << "grant " << slot_gen << " verified twice";
  for (const auto& pages : pages_per_group) it->second.pages_left += std::ssize(pages);
  for (size_t g = 0; g < pages_per_group.size(); ++g) {
    const auto group = static_cast<int32_t>(g);
    for (const int32_t page_id : pages_per_group[g]) {
      hasher_->hash(slot_gen, group, page_id,
                    [this, slot_gen, group, page_id](const PagesDigest& page) {
                      add(slot_gen, group, page_id, page);
                    });
    }
  }
  settle(slot_gen);  // a grant of no pages at all
}

void PageVerifier::add(uint64_t slot_gen, int32_t group, int32_t page_id, const PagesDigest& page) {
  Check& check = checks_.at(slot_gen);
  check.got.add(group, page_id, page);
  --check.pages_left;
  settle(slot_gen);
}

void PageVerifier::settle(uint64_t slot_gen) {
  const auto it = checks_.find(slot_gen);
  if (it->second.pages_left > 0) return;
  const bool intact = it->second.got.digest() == it->second.want;
  checks_.erase(it);
  report_({.kind = MoverEvent::Kind::kVerified, .slot_gen = slot_gen, .intact = intact});
}

}  // namespace baton
