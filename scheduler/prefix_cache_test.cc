// Hits over one and several kv_groups, salts, eviction, first page wins.
#include "scheduler/prefix_cache.h"

#include <numeric>
#include <utility>

#include "tests/doctest.h"

namespace baton {
namespace {

KvGroup group(int32_t page_tokens, int32_t window = 0) {
  KvGroup g;
  g.layers = {0};
  g.num_kv_heads = g.head_dim = 1;
  g.page_tokens = page_tokens;
  g.window = window;
  return g;
}

std::vector<TokenId> iota(int32_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct Fixture {
  Fixture(std::vector<KvGroup> groups, const std::vector<int32_t>& pages, bool enabled = true)
      : layout{std::move(groups)}, ledger(pages), cache(layout, ledger, 7, enabled) {}

  // Takes pages for `tokens`, publishes the whole ones and returns their ids.
  std::vector<int32_t> fill(const std::vector<TokenId>& tokens, int32_t g,
                            const std::string& salt = "") {
    const int32_t count =
        static_cast<int32_t>(tokens.size()) / layout.groups[static_cast<size_t>(g)].page_tokens;
    std::vector<PageRef> pages = ledger.take(g, count);
    std::vector<int32_t> ids;
    for (const PageRef& page : pages) ids.push_back(page.page_id());
    cache.insert(tokens, salt, g, ids);
    while (!pages.empty()) pages.pop_back();  // the end first, as the scheduler does
    return ids;
  }

  KvLayout layout;
  PageLedger ledger;
  PrefixCache cache;
};

TEST_CASE("a hit is whole pages of the same tokens, below the limit") {
  Fixture f({group(16)}, {8});
  const std::vector<int32_t> ids = f.fill(iota(50), 0);
  CHECK(ids.size() == 3);
  CHECK(f.ledger.counts(0).cached == 3);
  const PrefixHit hit = f.cache.match(iota(64), 63, "");
  CHECK(hit.tokens == 48);
  CHECK(hit.pages[0].size() == 3);
  CHECK(hit.pages[0][2].page_id() == ids[2]);
  CHECK(f.ledger.counts(0).used == 3);
  CHECK(f.cache.match_length(iota(48), 47, "") == 32);
  std::vector<TokenId> other = iota(48);
  other[20] = 999;
  CHECK(f.cache.match_length(other, 47, "") == 16);
  CHECK(f.cache.match_length(iota(48, 1), 48, "") == 0);
  CHECK(f.cache.queries_tokens() == 64);
  CHECK(f.cache.hits_tokens() == 48);
}

TEST_CASE("a salt separates") {
  Fixture f({group(16)}, {8});
  f.fill(iota(32), 0, "tenant a");
  CHECK(f.cache.match_length(iota(32), 32, "tenant a") == 32);
  CHECK(f.cache.match_length(iota(32), 32, "tenant b") == 0);
  CHECK(f.cache.match_length(iota(32), 32, "") == 0);
}

TEST_CASE("a cached block keeps its first page") {
  Fixture f({group(16)}, {8});
  const std::vector<int32_t> first = f.fill(iota(32), 0);
  f.fill(iota(32), 0);
  CHECK(f.ledger.counts(0).cached == 2);
  CHECK(f.cache.match(iota(32), 32, "").pages[0][0].page_id() == first[0]);
}

TEST_CASE("eviction shortens the hit from its end and frees the entries") {
  Fixture f({group(16)}, {4});
  f.fill(iota(64), 0);
  CHECK(f.cache.blocks() == 4);
  std::vector<PageRef> taken = f.ledger.take(0, 1);
  CHECK(f.cache.match_length(iota(64), 64, "") == 48);
  CHECK(f.cache.blocks() == 3);
  for (PageRef& page : f.ledger.take(0, 3)) taken.push_back(std::move(page));
  CHECK(f.cache.blocks() == 0);
}

TEST_CASE("groups of different page sizes: whole pages of the largest") {
  Fixture f({group(16), group(64)}, {16, 4});
  f.fill(iota(128), 0);
  CHECK(f.cache.match_length(iota(128), 128, "") == 0);  // the second group has nothing
  f.fill(iota(128), 1);
  CHECK(f.cache.match_length(iota(128), 128, "") == 128);
  const PrefixHit hit = f.cache.match(iota(128), 127, "");
  CHECK(hit.tokens == 64);
  CHECK(hit.pages[0].size() == 4);
  CHECK(hit.pages[1].size() == 1);
}

TEST_CASE("a window group needs only what the next token sees") {
  Fixture f({group(16), group(16, 24)}, {16, 16});
  f.fill(iota(96), 0);
  std::vector<PageRef> pages = f.ledger.take(1, 2);
  // Positions 64..95 only: enough for a hit at 96 (which sees 73..), not at 80 (57..).
  f.cache.insert(iota(96), "", 1, {-1, -1, -1, -1, pages[0].page_id(), pages[1].page_id()});
  CHECK(f.cache.match_length(iota(200), 200, "") == 96);
  CHECK(f.cache.match_length(iota(200), 95, "") == 0);
  const PrefixHit hit = f.cache.match(iota(200), 200, "");
  CHECK(hit.first_token == std::vector<int32_t>{0, 64});
  CHECK(hit.pages[1].size() == 2);
  CHECK(hit.pages[1][0].page_id() == pages[0].page_id());
}

TEST_CASE("publishing goes on from a position, and from the start when that is gone") {
  Fixture f({group(16)}, {4});
  std::vector<PageRef> pages = f.ledger.take(0, 3);
  const std::vector<int32_t> ids = {pages[0].page_id(), pages[1].page_id(), pages[2].page_id()};
  PrefixPosition position;
  const std::vector<TokenId> tokens = iota(48);
  f.cache.insert(std::span(tokens).first(16), "", 0, {ids[0]}, &position);
  CHECK(position.tokens == 16);
  f.cache.insert(std::span(tokens).first(32), "", 0, {ids[0], ids[1]}, &position);
  CHECK(f.cache.match_length(tokens, 48, "") == 32);
  while (!pages.empty()) pages.pop_back();
  pages = f.ledger.take(0, 4);  // everything is evicted
  CHECK(f.cache.blocks() == 0);
  const std::vector<int32_t> again = {pages[0].page_id(), pages[1].page_id(), pages[2].page_id()};
  f.cache.insert(tokens, "", 0, again, &position);
  CHECK(position.tokens == 48);
  CHECK(f.cache.match_length(tokens, 48, "") == 48);
  CHECK(f.cache.blocks() == 3);
}

TEST_CASE("switched off, it neither stores nor finds") {
  Fixture f({group(16)}, {8}, false);
  f.fill(iota(32), 0);
  CHECK(f.cache.match_length(iota(32), 32, "") == 0);
  CHECK(f.ledger.counts(0).free == 8);
}

}  // namespace
}  // namespace baton
