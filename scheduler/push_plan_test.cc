// Which pages a chunk completes, and which grants are refused.
#include "scheduler/push_plan.h"

#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

std::vector<int32_t> destinations(const std::vector<PushPage>& plan, int32_t group) {
  std::vector<int32_t> pages;
  for (const PushPage& push : plan) {
    if (push.group == group) pages.push_back(push.dst_page);
  }
  return pages;
}

TEST_CASE("a page goes with the chunk that completes it or ends the prompt in it") {
  const KvLayout layout{{test_group(16)}};
  PageLedger ledger({8});
  PageTable table(layout);
  table.append(0, 0, ledger.take(0, 4));
  const PushTarget target{9, 0, {{0, {100, 101, 102, 103}}}};
  const auto plan = [&](int32_t begin, int32_t end, bool ends) {
    return destinations(pages_to_push(layout, target, table, begin, end, ends), 0);
  };
  CHECK(plan(0, 15, false).empty());
  CHECK(plan(0, 16, false) == std::vector<int32_t>{100});
  CHECK(plan(15, 47, false) == std::vector<int32_t>{100, 101});
  CHECK(plan(47, 50, true) == std::vector<int32_t>{102, 103});
  CHECK(plan(48, 64, true) == std::vector<int32_t>{103});
  const PushPage first = pages_to_push(layout, target, table, 0, 16, false)[0];
  CHECK(first.transfer == 9);
  CHECK(first.src_page == table.at(0, 0).page_id());
}

TEST_CASE("what D has, or no longer sees, is not pushed") {
  const KvLayout layout{{test_group(16), test_group(16, 20)}};
  PageLedger ledger({8, 8});
  PageTable table(layout);
  for (int32_t g = 0; g < 2; ++g) table.append(g, 0, ledger.take(g, 5));
  table.drop_before(1, 32);
  // 70 tokens; the next one sees 51.. in the window group.
  const PushTarget target{9, 32, {{32, {100, 101, 102}}, {48, {200, 201}}}};
  const std::vector<PushPage> plan = pages_to_push(layout, target, table, 0, 70, true);
  CHECK(destinations(plan, 0) == std::vector<int32_t>{100, 101, 102});
  CHECK(destinations(plan, 1) == std::vector<int32_t>{200, 201});
  // A grant may name pages that D has: they are D's, and shared.
  const PushTarget wider{9, 32, {{0, {98, 99, 100, 101, 102}}, {48, {200, 201}}}};
  CHECK(destinations(pages_to_push(layout, wider, table, 0, 70, true), 0) ==
        std::vector<int32_t>{100, 101, 102});
}

TEST_CASE("a grant must cover what D will see") {
  const KvLayout layout{{test_group(16), test_group(16, 20)}};
  const GrantGroup window{48, {200, 201}};
  CHECK(check_grant(layout, {9, 32, {{32, {100, 101, 102}}, window}}, 70).ok());
  CHECK(check_grant(layout, {9, 32, {{32, {100, 101, 102, 103}}, window}}, 70).ok());
  CHECK(check_grant(layout, {9, 32, {{32, {100, 101}}, window}}, 70).code() ==
        Code::kInvalidArgument);
  CHECK_FALSE(check_grant(layout, {9, 32, {{48, {101, 102}}, window}}, 70).ok());
  CHECK_FALSE(check_grant(layout, {9, 32, {{30, {100, 101, 102}}, window}}, 70).ok());
  CHECK_FALSE(check_grant(layout, {9, 32, {{32, {100, 101, 102}}, {64, {201}}}}, 70).ok());
  CHECK_FALSE(check_grant(layout, {9, 32, {{32, {100, 101, 102}}}}, 70).ok());
}

TEST_CASE("a grant that names a page twice is refused, not pushed over itself") {
  const KvLayout layout{{test_group(16)}};
  CHECK(check_grant(layout, {9, 0, {{0, {7, 5, 6}}}}, 48).ok());
  const Status twice = check_grant(layout, {9, 0, {{0, {7, 5, 7}}}}, 48);
  CHECK(twice.code() == Code::kInvalidArgument);
  CHECK(twice.message() == "grant of kv_group 0: got page 7 twice, want each page once");
}

}  // namespace
}  // namespace baton
