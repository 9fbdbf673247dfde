// D's side of the digest: hashes landed pages and compares them with what P has told. Handoff
// thread (simulators: their one thread).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kvtransfer/page_hasher.h"
#include "kvtransfer/page_mover.h"

namespace baton {

class PageVerifier {
 public:
  using Report = std::function<void(MoverEvent)>;

  PageVerifier(std::unique_ptr<PageHasher> hasher, Report report)
      : hasher_(std::move(hasher)), report_(std::move(report)) {}

  // Then kVerified, from pump(). No page may be written or given away before that.
  void verify(uint64_t slot_gen, const std::vector<std::vector<int32_t>>& pages_per_group,
              const PagesDigest& want);
  bool pump() { return hasher_->pump(); }  // true: call again soon

 private:
  struct Check {
    PagesDigest want;
    int64_t pages_left = 0;
    PagesDigestBuilder got;
  };
  void add(uint64_t slot_gen, int32_t group, int32_t page_id, const PagesDigest& page);
  void settle(uint64_t slot_gen);

  const std::unique_ptr<PageHasher> hasher_;
  const Report report_;
  std::map<uint64_t, Check> checks_;  // by slot_gen
};

}  // namespace baton
