#include "model/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/status.h"
#include "model/kv_plan.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

KvGroup group_of(int32_t head_dim, int32_t page_tokens) {
  return {.layers = {0, 1, 2}, .num_kv_heads = 2, .head_dim = head_dim, .page_tokens = page_tokens};
}

}  // namespace

TEST_CASE("pages are contiguous over slabs that start on machine pages") {
  const int64_t machine_page = ::sysconf(_SC_PAGESIZE);
  for (const int32_t head_dim : {16, 24, 5}) {
    CAPTURE(head_dim);
    const KvGroup group = group_of(head_dim, 16);
    const PagePool pool(group, 37, 64 << 10);
    CHECK(pool.page_bytes() == 3 * 2 * 2 * 16 * head_dim * 4);
    CHECK(pool.slabs().size() > 1);
    int64_t covered = 0;
    for (const Slab& slab : pool.slabs()) {
      CHECK(slab.base == pool.base() + covered);
      CHECK(covered % machine_page == 0);
      CHECK(slab.fd.valid());
      covered += slab.bytes;
    }
    CHECK(covered >= 37 * pool.page_bytes());
    CHECK((pool.pages_per_slab() * pool.page_bytes()) % machine_page == 0);
    for (int32_t page = 0; page < 37; ++page) {
      std::memset(pool.page(page), page, static_cast<size_t>(pool.page_bytes()));
    }
    for (int32_t page = 0; page < 37; ++page) {
      CHECK(pool.page(page)[0] == std::byte(page));
      CHECK(pool.page(page)[pool.page_bytes() - 1] == std::byte(page));
    }
  }
}

TEST_CASE("a slab's memfd shows the pool's bytes to whoever maps it") {
  const PagePool pool(group_of(16, 16), 8, 1 << 20);
  const Slab& slab = pool.slabs()[0];
  void* other = ::mmap(nullptr, static_cast<size_t>(slab.bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                       slab.fd.get(), 0);
  REQUIRE(other != MAP_FAILED);
  static_cast<std::byte*>(other)[pool.page_bytes() * 3] = std::byte{42};
  CHECK(pool.page(3)[0] == std::byte{42});
  ::munmap(other, static_cast<size_t>(slab.bytes));
}

TEST_CASE(
    "layers are grouped by window, full attention first, and all groups hold as many tokens") {
  ModelConfig config{.num_layers = 5,
                     .num_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim = 16,
                     .layer_windows = {32, 0, 32, 0, 64}};
  const KvLayout layout = plan_kv_layout(config, 16, Dtype::kF16);
  REQUIRE(layout.groups.size() == 3);
  CHECK(layout.groups[0].layers == std::vector<int32_t>{1, 3});
  CHECK(layout.groups[1].layers == std::vector<int32_t>{0, 2});
  CHECK(layout.groups[2].layers == std::vector<int32_t>{4});
  CHECK(layout.groups[1].window == 32);
  CHECK(layout.groups[0].page_bytes() == 2 * 2 * 2 * 16 * 16 * 2);
  const int64_t one_page_each = 5 * 2 * 2 * 16 * 16 * 2;
  CHECK(kv_bytes_for(layout, 17) == 2 * one_page_each);
  CHECK(plan_pages(layout, 10 * one_page_each + 1) == std::vector<int32_t>{10, 10, 10});
  CHECK_THROWS_AS(plan_pages(layout, one_page_each - 1), ConfigError);
  CHECK_THROWS_AS(plan_kv_layout(config, 0, Dtype::kF16), ConfigError);
  CHECK_THROWS_AS(plan_kv_layout(config, 24, Dtype::kF16), ConfigError);
}

TEST_CASE("the KV dtype follows the weights unless it is given") {
  CHECK(parse_kv_dtype("auto", true) == Dtype::kF16);
  CHECK(parse_kv_dtype("auto", false) == Dtype::kF32);
  CHECK(parse_kv_dtype("bf16", true) == Dtype::kBF16);
  CHECK_THROWS_AS(parse_kv_dtype("int8", true), ConfigError);
}
