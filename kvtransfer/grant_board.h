// Which pages may be stored into by the transports that store in our own process (tcp, ucx), and
// the lock that makes "no longer" true. Written by the loop's thread, asked by the handoff thread
// before every store.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/link.h"
#include "base/status.h"
#include "model/page_pool.h"

namespace baton {

// kInvalidArgument unless a peer's message names bytes inside one page of ours.
Status check_slice(const std::vector<PagePool*>& pools, int32_t group, int32_t page, int64_t offset,
                   int64_t bytes);

// Thread-safe.
class GrantBoard {
 public:
  enum class Verdict : uint8_t {
    kStored,
    kGivenUp,    // no such grant (any more): the bytes are dropped, the sender is told
    kForbidden,  // another link's grant, or a page outside it: the sender is broken
  };

  void allow(LinkId link, uint64_t slot_gen, std::vector<std::vector<int32_t>> pages_per_group);
  // After it returns no store into these pages is under way or will start. Waits for one store (at
  // most 256 KiB).
  void disallow(uint64_t slot_gen);

  // Calls store() under the lock if the page may be written now. `store` must be short and must not
  // block.
  template <typename Store>
  Verdict store_if_allowed(LinkId link, uint64_t slot_gen, int32_t group, int32_t page,
                           Store&& store) {
    std::lock_guard lock(mutex_);
    const Verdict verdict = judge(link, slot_gen, group, page);
    if (verdict == Verdict::kStored) store();
    return verdict;
  }

 private:
  struct Grant {
    LinkId link = 0;
    std::vector<std::vector<int32_t>> pages;  // by group, ascending
  };
  Verdict judge(LinkId link, uint64_t slot_gen, int32_t group, int32_t page) const;

  std::mutex mutex_;
  std::map<uint64_t, Grant> grants_;
};

}  // namespace baton
