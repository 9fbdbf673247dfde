// Pages by position: gaps, sharing, windows, order of return.
#include "scheduler/page_table.h"

#include <utility>

#include "scheduler/slot_numbers.h"
#include "scheduler/steps_in_flight.h"
#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("a table knows its pages by position") {
  const KvLayout layout{{test_group(16), test_group(32)}};
  PageLedger ledger({8, 8});
  PageTable table(layout);
  table.append(0, 0, ledger.take(0, 3));
  table.append(1, 32, ledger.take(1, 1));
  CHECK(table.end_token(0) == 48);
  CHECK(table.end_token(1) == 64);
  CHECK(table.page_ids(1, 33) == std::vector<int32_t>{-1, table.at(1, 40).page_id()});
  CHECK(table.block_tables(17)[0].size() == 2);
  CHECK_FALSE(table.at(0, 48));
  PageRef before = table.replace(0, 20, std::move(ledger.take(0, 1).front()));
  CHECK(before.page_id() != table.at(0, 16).page_id());
}

TEST_CASE("pages before a position are dropped whole") {
  const KvLayout layout{{test_group(16, 20)}};
  PageLedger ledger({8});
  PageTable table(layout);
  table.append(0, 0, ledger.take(0, 4));
  table.drop_before(0, first_visible(layout.groups[0], 50));  // sees 31..50
  CHECK(ledger.counts(0).used == 3);
  CHECK_FALSE(table.at(0, 0));
  table.drop_before(0, 32);
  CHECK(table.page_ids(0, 64)[1] == -1);
  CHECK(table.page_ids(0, 64)[2] >= 0);
  PageTable shared = table.share();
  CHECK(shared.page_ids(0, 64) == table.page_ids(0, 64));
  CHECK(table.take_all()[0].size() == 2);
  CHECK(ledger.counts(0).used == 2);  // the copy's
}

TEST_CASE("the start of a dropped sequence is evicted last") {
  const KvLayout layout{{test_group(16)}};
  PageLedger ledger({3});
  PageTable table(layout);
  table.append(0, 0, ledger.take(0, 3));
  const std::vector<int32_t> ids = table.page_ids(0, 48);
  for (int32_t id : ids) ledger.set_cacheable(0, id, true);
  drop_pages(table.take_all());
  CHECK(ledger.take(0, 2).size() == 2);
  CHECK(ledger.state(0, ids[0]) == PageState::kCached);
}

TEST_CASE("pages given up during a step come home when it completes") {
  PageLedger ledger({4});
  StepsInFlight steps;
  steps.drop_after(std::move(ledger.take(0, 1).front()));
  CHECK(ledger.counts(0).free == 4);  // nothing in flight
  steps.push(StepRecord{1, {}, {}});
  steps.push(StepRecord{2, {}, {}});
  GroupPages pages;
  pages.push_back(ledger.take(0, 3));
  steps.drop_after(std::move(pages));
  CHECK(steps.held(0) == 3);
  CHECK(steps.pop().step == 1);
  CHECK(ledger.counts(0).used == 3);
  steps.pop();
  CHECK(ledger.counts(0).free == 4);
}

TEST_CASE("slot numbers stay small and closed ones are told once") {
  SlotNumbers slots;
  CHECK(slots.open() == 0);
  CHECK(slots.open() == 1);
  CHECK(slots.open() == 2);
  slots.close(1);
  slots.close(0);
  CHECK(slots.open() == 0);
  CHECK(slots.take_closed() == std::vector<int32_t>{1, 0});
  CHECK(slots.take_closed().empty());
}

}  // namespace
}  // namespace baton
