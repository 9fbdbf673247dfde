#include "router/prefix_history.h"

#include <xxhash.h>

#include <algorithm>

namespace baton {

std::vector<uint64_t> PrefixHistory::chain(const std::vector<TokenId>& tokens,
                                           std::string_view cache_salt) const {
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size() / kBlockTokens);
  uint64_t previous = XXH3_64bits_withSeed(cache_salt.data(), cache_salt.size(), key_);
  for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens) {
    previous = XXH3_64bits_withSeed(&tokens[at], kBlockTokens * sizeof(TokenId), previous ^ key_);
    hashes.push_back(previous);
  }
  return hashes;
}

void PrefixHistory::remember(const std::vector<uint64_t>& chain, WorkerNumber worker) {
  // From the end, so that the first block, which all longer prefixes need, is the youngest.
  for (auto hash = chain.rbegin(); hash != chain.rend(); ++hash) touch(*hash, worker);
}

void PrefixHistory::touch(uint64_t hash, WorkerNumber worker) {
  auto it = blocks_.find(hash);
  if (it == blocks_.end()) {
    while (!by_age_.empty() && blocks_.size() >= blocks_max_) {
      blocks_.erase(by_age_.front());
      by_age_.pop_front();
    }
    it = blocks_.emplace(hash, Block{}).first;
    it->second.age = by_age_.insert(by_age_.end(), hash);
  } else {
    by_age_.splice(by_age_.end(), by_age_, it->second.age);
  }
  Block& block = it->second;
  if (std::find(block.workers.begin(), block.workers.end(), worker) != block.workers.end()) return;
  block.workers[block.next] = worker;
  block.next = (block.next + 1) % kWorkersPerBlock;
}

int32_t PrefixHistory::seen_tokens(const std::vector<uint64_t>& chain, WorkerNumber worker) const {
  int32_t tokens = 0;
  for (const uint64_t hash : chain) {
    const auto it = blocks_.find(hash);
    if (it == blocks_.end()) break;
    const auto& workers = it->second.workers;
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) break;
    tokens += kBlockTokens;
  }
  return tokens;
}

}  // namespace baton
