#include "kvtransfer/grant_board.h"

#include "tests/doctest.h"

namespace baton {

TEST_CASE("a store happens only inside a living grant of that link") {
  GrantBoard board;
  int32_t stores = 0;
  const auto ask = [&](LinkId link, uint64_t slot_gen, int32_t group, int32_t page) {
    return board.store_if_allowed(link, slot_gen, group, page, [&] { ++stores; });
  };
  board.allow(1, 10, {{7, 3}, {4}});
  CHECK_EQ(ask(1, 10, 0, 3), GrantBoard::Verdict::kStored);
  CHECK_EQ(ask(1, 10, 1, 4), GrantBoard::Verdict::kStored);
  CHECK_EQ(stores, 2);
  CHECK_EQ(ask(1, 10, 0, 4), GrantBoard::Verdict::kForbidden);
  CHECK_EQ(ask(1, 10, 2, 4), GrantBoard::Verdict::kForbidden);
  CHECK_EQ(ask(1, 10, -1, 4), GrantBoard::Verdict::kForbidden);
  CHECK_EQ(ask(2, 10, 0, 3), GrantBoard::Verdict::kForbidden);
  CHECK_EQ(ask(1, 11, 0, 3), GrantBoard::Verdict::kGivenUp);
  board.disallow(10);
  CHECK_EQ(ask(1, 10, 0, 3), GrantBoard::Verdict::kGivenUp);
  CHECK_EQ(stores, 2);
}

}  // namespace baton
