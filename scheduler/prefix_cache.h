// Finds pages that hold the start of a token sequence. A hash chain over 16-token blocks whatever the page size: XXH3-128 keyed by a random
// key of the process; entries keep their tokens and a hit compares them, so a collision can never give another prompt's KV. Owned by
// the worker's loop; not thread-safe. Pages become reusable only when whole; a hit is a whole number of pages of the largest group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/messages.h"
#include "model/kv_layout.h"
#include "scheduler/page_ledger.h"

namespace baton {

struct PrefixHit {
  int32_t tokens = 0;                       // positions [0, tokens) are cached
  std::vector<int32_t> first_token;         // per group: where its pages start (a window group needs only the end)
  std::vector<std::vector<PageRef>> pages;  // per group, referenced ("pinned")
};

class PrefixCache final : public EvictionListener {
 public:
  PrefixCache(const KvLayout& layout, PageLedger& ledger, uint64_t hash_key, bool enabled);
  ~PrefixCache() override;

  // The longest usable hit of at most `tokens_max` tokens (callers pass prompt_len - 1, so that one token is left to compute).
  PrefixHit match(const std::vector<TokenId>& tokens, int32_t tokens_max, const std::string& salt);
  int32_t match_length(const std::vector<TokenId>& tokens, int32_t tokens_max, const std::string& salt) const;  // pins nothing

  // Publishes the whole pages of positions [0, tokens.size()) of one group; pages[i] holds [i * page_tokens, ...), -1 = not there. A block that is
  // cached already keeps its first page. Published pages are immutable.
  void insert(const std::vector<TokenId>& tokens, const std::string& salt, int32_t group, const std::vector<int32_t>& pages);

  void evicted(int32_t group, int32_t page_id) override;
  int64_t queries_tokens() const;  // asked by match()
  int64_t hits_tokens() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
