#include "kvtransfer/page_hasher.h"

#include <xxhash.h>

#include "base/check.h"
#include "kvtransfer/wire.h"

namespace baton {
namespace {

// Of one pump(): about a millisecond, so that commands, copies and sockets are served in between.
constexpr int64_t kPumpBytesMax = 8 << 20;

PagesDigest xxh3(const void* bytes, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, size);
  return {hash.low64, hash.high64};
}

}  // namespace

void HostPageHasher::hash(uint64_t owner, int32_t group, int32_t page_id, Done done) {
  CHECK(page_id >= 0 && page_id < pools_.at(group)->num_pages()) << "page " << page_id;
  jobs_.push_back({owner, group, page_id, std::move(done)});
}

void HostPageHasher::cancel(uint64_t owner) {
  std::erase_if(jobs_, [owner](const Job& job) { return job.owner == owner; });
}

bool HostPageHasher::pump() {
  for (int64_t budget = kPumpBytesMax; budget > 0 && !jobs_.empty();) {
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    const PagePool& pool = *pools_[job.group];
    budget -= pool.page_bytes();
    job.done(xxh3(pool.page(job.page_id), static_cast<size_t>(pool.page_bytes())));
  }
  return !jobs_.empty();
}

void PagesDigestBuilder::add(int32_t group, int32_t page_id_at_d, const PagesDigest& page) {
  const bool fresh = pages_.try_emplace({group, page_id_at_d}, page).second;
  CHECK(fresh) << "page " << page_id_at_d << " of group " << group << " hashed twice";
}

PagesDigest PagesDigestBuilder::digest() const {
  WireWriter records;
  for (const auto& [page, hash] : pages_) {
    records.put(page.first);
    records.put(page.second);
    records.put(hash.low);
    records.put(hash.high);
  }
  const std::string bytes = records.take();
  return xxh3(bytes.data(), bytes.size());
}

}  // namespace baton
