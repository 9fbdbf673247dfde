// The prefix cache as a tree of 16-token blocks, found through one hash map by their chained hash.
// A block is exact: its own tokens and its parent are compared, up to the salt at the root. A page
// of a group is attached to the block at which it ends; a block lives while it has pages or
// children.
#include "scheduler/prefix_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

constexpr int32_t kBlockTokens = 16;

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

struct HashOfHash {
  size_t operator()(const Hash128& hash) const { return hash.low; }
};

struct Block {
  uint64_t entry = 0;  // its number; never reused, so it stands for the exact tokens up to here
  Hash128 hash;
  Block* parent = nullptr;  // nullptr: the first block of a sequence
  std::string salt;         // of a first block
  std::array<TokenId, kBlockTokens> tokens{};
  int32_t children = 0;
  int32_t pages_attached = 0;
  std::vector<int32_t> pages;  // per group: the page that ends with this block, or -1
};

Hash128 to_hash(XXH128_hash_t hash) {
  return {hash.low64, hash.high64};
}

}  // namespace

class PrefixCache::Impl {
 public:
  Impl(const KvLayout& layout, PageLedger& ledger, uint64_t hash_key, bool enabled)
      : layout_(layout), ledger_(ledger), hash_key_(hash_key), enabled_(enabled) {
    for (const KvGroup& group : layout.groups) {
      CHECK(group.page_tokens > 0 && group.page_tokens % kBlockTokens == 0)
          << "page_tokens is " << group.page_tokens << ", want a multiple of " << kBlockTokens;
      hit_tokens_ = std::max(hit_tokens_, group.page_tokens);
    }
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      CHECK_EQ(hit_tokens_ % layout.groups[g].page_tokens, 0) << "the largest page is no multiple";
      block_of_page_.emplace_back(static_cast<size_t>(ledger.counts(static_cast<int32_t>(g)).total),
                                  nullptr);
    }
  }

  // The blocks of `tokens`, as far as they are known, at most `tokens_max` tokens.
  std::vector<const Block*> walk(std::span<const TokenId> tokens, int32_t tokens_max,
                                 const std::string& salt) const {
    std::vector<const Block*> path;
    if (!enabled_) return path;
    const int32_t end = std::min(static_cast<int32_t>(tokens.size()), tokens_max);
    Hash128 hash = root_hash(salt);
    for (int32_t first = 0; first + kBlockTokens <= end; first += kBlockTokens) {
      hash = next_hash(hash, tokens.data() + first);
      const Block* parent = path.empty() ? nullptr : path.back();
      const Block* block = find(hash, parent, salt, tokens.data() + first);
      if (block == nullptr) break;
      path.push_back(block);
    }
    return path;
  }

  // The longest multiple of the largest page for which each group has what a query at that position
  // sees: a full-attention group everything, a window group the window.
  int32_t usable_tokens(const std::vector<const Block*>& path) const {
    std::vector<int32_t> run(layout_.groups.size(), 0);  // tokens in an unbroken row up to here
    int32_t best = 0;
    for (size_t i = 0; i < path.size(); ++i) {
      const int32_t end = static_cast<int32_t>(i + 1) * kBlockTokens;
      for (size_t g = 0; g < run.size(); ++g) {
        const int32_t page_tokens = layout_.groups[g].page_tokens;
        if (end % page_tokens != 0) continue;
        run[g] = path[i]->pages[g] >= 0 ? run[g] + page_tokens : 0;
      }
      if (end % hit_tokens_ != 0) continue;
      bool usable = true;
      for (size_t g = 0; g < run.size(); ++g) {
        usable = usable && run[g] >= end - first_token(layout_.groups[g], end);
      }
      if (usable) best = end;
    }
    return best;
  }

  PrefixHit pin(const std::vector<const Block*>& path, int32_t tokens) {
    PrefixHit hit;
    hit.tokens = tokens;
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      const KvGroup& group = layout_.groups[g];
      hit.first_token.push_back(first_token(group, tokens));
      hit.pages.emplace_back();
      for (int32_t end = hit.first_token[g] + group.page_tokens; end <= tokens;
           end += group.page_tokens) {
        const Block* block = path[static_cast<size_t>(end / kBlockTokens - 1)];
        hit.pages[g].push_back(ledger_.reference(static_cast<int32_t>(g), block->pages[g]));
      }
    }
    return hit;
  }

  void insert(std::span<const TokenId> tokens, const std::string& salt, int32_t group,
              const std::vector<int32_t>& pages, PrefixPosition* position) {
    if (!enabled_) return;
    const int32_t page_tokens = layout_.groups.at(static_cast<size_t>(group)).page_tokens;
    const int32_t end = std::min(static_cast<int32_t>(tokens.size()) / page_tokens,
                                 static_cast<int32_t>(pages.size())) *
                        page_tokens;
    Block* parent = position == nullptr ? nullptr : find_position(*position);
    int32_t first = parent == nullptr ? 0 : position->tokens;
    Hash128 hash = parent == nullptr ? root_hash(salt) : parent->hash;
    for (; first < end; first += kBlockTokens) {
      hash = next_hash(hash, tokens.data() + first);
      Block* block = find_or_add(hash, parent, salt, tokens.data() + first);
      if (block == nullptr) break;  // two sequences with one hash: the second is not cached
      parent = block;
      const int32_t page_id = pages[static_cast<size_t>(first / page_tokens)];
      const bool ends_page = (first + kBlockTokens) % page_tokens == 0;
      if (ends_page && page_id >= 0) attach(*block, group, page_id);
    }
    if (parent == nullptr) return;
    if (position != nullptr) {
      *position = {first, parent->hash.low, parent->hash.high, parent->entry};
    }
    remove_unused(parent);
  }

  void evicted(int32_t group, int32_t page_id) {
    Block*& place = block_of_page_[static_cast<size_t>(group)][static_cast<size_t>(page_id)];
    Block* block = std::exchange(place, nullptr);
    if (block == nullptr) return;
    block->pages[static_cast<size_t>(group)] = -1;
    --block->pages_attached;
    remove_unused(block);
  }

  int64_t queries_tokens_ = 0;
  int64_t hits_tokens_ = 0;
  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }

 private:
  // The page in which the first position that a query at `position` sees lies.
  static int32_t first_token(const KvGroup& group, int32_t position) {
    if (group.window == 0) return 0;
    const int32_t first = std::max(0, position - group.window + 1);
    return std::min(position, first / group.page_tokens * group.page_tokens);
  }

  Hash128 root_hash(const std::string& salt) const {
    return to_hash(XXH3_128bits_withSeed(salt.data(), salt.size(), hash_key_));
  }

  Hash128 next_hash(Hash128 previous, const TokenId* tokens) const {
    struct {
      Hash128 previous;
      TokenId tokens[kBlockTokens];
    } input;
    input.previous = previous;
    std::memcpy(input.tokens, tokens, sizeof(input.tokens));
    return to_hash(XXH3_128bits_withSeed(&input, sizeof(input), hash_key_));
  }

  Block* find(Hash128 hash, const Block* parent, const std::string& salt,
              const TokenId* tokens) const {
    const auto found = blocks_.find(hash);
    if (found == blocks_.end()) return nullptr;
    Block& block = *found->second;
    const bool same = block.parent == parent && (parent != nullptr || block.salt == salt) &&
                      std::equal(block.tokens.begin(), block.tokens.end(), tokens);
    return same ? &block : nullptr;
  }

  Block* find_position(const PrefixPosition& position) const {
    const auto found = blocks_.find({position.hash_low, position.hash_high});
    if (found == blocks_.end() || found->second->entry != position.entry) return nullptr;
    return found->second.get();
  }

  Block* find_or_add(Hash128 hash, Block* parent, const std::string& salt, const TokenId* tokens) {
    std::unique_ptr<Block>& place = blocks_[hash];
    if (place != nullptr) return find(hash, parent, salt, tokens);
    place = std::make_unique<Block>();
    place->entry = next_entry_++;
    place->hash = hash;
    place->parent = parent;
    if (parent == nullptr) place->salt = salt;
    if (parent != nullptr) ++parent->children;
    std::copy_n(tokens, kBlockTokens, place->tokens.begin());
    place->pages.assign(layout_.groups.size(), -1);
    return place.get();
  }

  void attach(Block& block, int32_t group, int32_t page_id) {
    int32_t& place = block.pages[static_cast<size_t>(group)];
    if (place >= 0) return;
    place = page_id;
    ++block.pages_attached;
    block_of_page_[static_cast<size_t>(group)][static_cast<size_t>(page_id)] = &block;
    ledger_.set_cacheable(group, page_id, true);
  }

  void remove_unused(Block* block) {
    while (block != nullptr && block->children == 0 && block->pages_attached == 0) {
      Block* parent = block->parent;
      if (parent != nullptr) --parent->children;
      blocks_.erase(block->hash);
      block = parent;
    }
  }

  const KvLayout& layout_;
  PageLedger& ledger_;
  const uint64_t hash_key_;
  const bool enabled_;
  uint64_t next_entry_ = 1;
  int32_t hit_tokens_ = kBlockTokens;  // a hit is a multiple of this
  std::unordered_map<Hash128, std::unique_ptr<Block>, HashOfHash> blocks_;
  std::vector<std::vector<Block*>> block_of_page_;  // [group][page_id]
};

PrefixCache::PrefixCache(const KvLayout& layout, PageLedger& ledger, uint64_t hash_key,
                         bool enabled)
    : impl_(std::make_unique<Impl>(layout, ledger, hash_key, enabled)), ledger_(ledger) {
  ledger_.set_eviction_listener(this);
}

PrefixCache::~PrefixCache() {
  ledger_.set_eviction_listener(nullptr);
}

PrefixHit PrefixCache::match(std::span<const TokenId> tokens, int32_t tokens_max,
                             const std::string& salt, bool counted) {
  const std::vector<const Block*> path = impl_->walk(tokens, tokens_max, salt);
  PrefixHit hit = impl_->pin(path, impl_->usable_tokens(path));
  if (counted) {
    impl_->queries_tokens_ += static_cast<int64_t>(tokens.size());
    impl_->hits_tokens_ += hit.tokens;
  }
  return hit;
}

int32_t PrefixCache::match_length(std::span<const TokenId> tokens, int32_t tokens_max,
                                  const std::string& salt) const {
  return impl_->usable_tokens(impl_->walk(tokens, tokens_max, salt));
}

void PrefixCache::insert(std::span<const TokenId> tokens, const std::string& salt, int32_t group,
                         const std::vector<int32_t>& pages, PrefixPosition* position) {
  impl_->insert(tokens, salt, group, pages, position);
}

void PrefixCache::evicted(int32_t group, int32_t page_id) {
  impl_->evicted(group, page_id);
}
int64_t PrefixCache::queries_tokens() const {
  return impl_->queries_tokens_;
}
int64_t PrefixCache::hits_tokens() const {
  return impl_->hits_tokens_;
}
int64_t PrefixCache::blocks() const {
  return impl_->blocks();
}

}  // namespace baton
