// Which worker has seen which prefix, from the router's own history: a hint for placement, never a
// promise. Prompts are cut into blocks of 16 tokens; a block's hash covers everything before it, so
// equal hashes mean equal prefixes. Router loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/messages.h"

namespace baton {

// Numbers worker processes: a restarted worker has an empty cache, hence a new number.
using WorkerNumber = uint32_t;

class PrefixHistory {
 public:
  static constexpr int32_t kBlockTokens = 16;

  // `key`: random, of this process. At most `blocks_max` blocks are remembered, the least recently
  // used go first.
  PrefixHistory(uint64_t key, size_t blocks_max) : key_(key), blocks_max_(blocks_max) {}

  // The chain of block hashes of `tokens`; a partial last block has none.
  std::vector<uint64_t> chain(const std::vector<TokenId>& tokens,
                              std::string_view cache_salt) const;

  void remember(const std::vector<uint64_t>& chain, WorkerNumber worker);
  // Tokens of the longest prefix that `worker` has seen.
  int32_t seen_tokens(const std::vector<uint64_t>& chain, WorkerNumber worker) const;
  size_t size() const { return blocks_.size(); }

 private:
  static constexpr size_t kWorkersPerBlock = 4;  // the latest ones

  struct Block {
    std::array<WorkerNumber, kWorkersPerBlock> workers{};  // 0 = none
    uint32_t next = 0;                                     // where the next newcomer is written
    std::list<uint64_t>::iterator age;
  };

  void touch(uint64_t hash, WorkerNumber worker);

  const uint64_t key_;
  const size_t blocks_max_;
  std::unordered_map<uint64_t, Block> blocks_;
  std::list<uint64_t> by_age_;  // oldest first
};

}  // namespace baton
