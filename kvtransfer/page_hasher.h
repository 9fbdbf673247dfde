// The digest of a handoff's pages (kvtransfer.digest): each side hashes them as they lie in its own
// pool, P tells its result with COMMIT, D compares. Called by Pusher (P) and PageVerifier (D), in
// the handoff thread.
//
// Format: XXH3-128, seed 0, of each granted page's page_bytes; then XXH3-128, seed 0, of the
// records {i32 kv_group, i32 page id at D, u64 low, u64 high} (little-endian) of all of them, in
// ascending order of kv_group and page id. A page counts as a whole: what lies behind the prompt's
// last token travels with it, and P writes nothing there until the transfer has ended.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/messages.h"
#include "model/page_pool.h"

namespace baton {

// Hashes pages of our pools, for one kind of memory. One owner thread.
class PageHasher {
 public:
  using Done = std::function<void(const PagesDigest& page)>;

  virtual ~PageHasher() = default;
  // The page's bytes are final. `done` is called from pump(), in any order of pages.
  virtual void hash(uint64_t owner, int32_t group, int32_t page_id, Done done) = 0;
  // Afterwards no page is read for this owner, and no `done` of it is called.
  virtual void cancel(uint64_t owner) = 0;
  // Works on, for about a millisecond at most. True: call again soon.
  virtual bool pump() = 0;
};

// Pages in host memory.
class HostPageHasher final : public PageHasher {
 public:
  explicit HostPageHasher(std::vector<PagePool*> pools) : pools_(std::move(pools)) {}
  void hash(uint64_t owner, int32_t group, int32_t page_id, Done done) override;
  void cancel(uint64_t owner) override;
  bool pump() override;

 private:
  struct Job {
    uint64_t owner = 0;
    int32_t group = 0;
    int32_t page_id = 0;
    Done done;
  };
  const std::vector<PagePool*> pools_;
  std::deque<Job> jobs_;
};

// The hashes of one handoff's pages, put together.
class PagesDigestBuilder {
 public:
  // Each page once.
  void add(int32_t group, int32_t page_id_at_d, const PagesDigest& page);
  PagesDigest digest() const;

 private:
  std::map<std::pair<int32_t, int32_t>, PagesDigest> pages_;
};

}  // namespace baton
