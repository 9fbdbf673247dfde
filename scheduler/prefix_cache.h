// Finds pages that hold the start of a token sequence. A hash chain over 16-token blocks whatever
// the page size: XXH3-128 keyed by a random key of the process; entries keep their tokens and their
// predecessor, and a hit compares them, so a collision can never give another prompt's KV. Owned by
// the worker's loop; not thread-safe. Pages become reusable only when whole; a hit is a whole
// number of pages of the largest group.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/messages.h"
#include "model/kv_layout.h"
#include "scheduler/page_ledger.h"

namespace baton {

struct PrefixHit {
  int32_t tokens = 0;                // positions [0, tokens) are cached
  std::vector<int32_t> first_token;  // per group: where its pages start (a window group needs only
                                     // the end)
  std::vector<std::vector<PageRef>> pages;  // per group, referenced ("pinned")
};

// How far insert() has got with a sequence in one group, so that the next call goes on from there.
// Names an entry without keeping it alive: if it is gone, insert() starts from the beginning.
struct PrefixPosition {
  int32_t tokens = 0;
  uint64_t hash_low = 0, hash_high = 0;
  uint64_t entry = 0;
};

class PrefixCache final : public EvictionListener {
 public:
  // Page sizes are multiples of 16 tokens, and each divides the largest. Borrows `layout`
  // and `ledger`, which must outlive it, and listens to the ledger's evictions.
  PrefixCache(const KvLayout& layout, PageLedger& ledger, uint64_t hash_key, bool enabled);
  ~PrefixCache() override;

  // The longest usable hit of at most `tokens_max` tokens (callers pass prompt_len - 1, so that one
  // token is left to compute). `counted` is false for a repeated try of the same request.
  PrefixHit match(std::span<const TokenId> tokens, int32_t tokens_max, const std::string& salt,
                  bool counted = true);
  // The same length; pins nothing and is not counted.
  int32_t match_length(std::span<const TokenId> tokens, int32_t tokens_max,
                       const std::string& salt) const;

  // Publishes the whole pages of positions [0, tokens.size()) of one group; pages[i] holds
  // [i * page_tokens, ...), -1 = not there. A block that is cached already keeps its first page.
  // Published pages are immutable. `position`, if given, belongs to this sequence and group.
  void insert(std::span<const TokenId> tokens, const std::string& salt, int32_t group,
              const std::vector<int32_t>& pages, PrefixPosition* position = nullptr);

  void evicted(int32_t group, int32_t page_id) override;
  int64_t queries_tokens() const;  // asked by match()
  int64_t hits_tokens() const;
  int64_t blocks() const;  // entries of 16 tokens held

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  PageLedger& ledger_;
};

}  // namespace baton
