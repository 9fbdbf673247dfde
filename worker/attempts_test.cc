#include "worker/attempts.h"

#include "tests/doctest.h"

namespace baton {
namespace {

AttemptId id(uint64_t sequence) {
  return {{1, sequence}, 0};
}

TEST_CASE("attempts expire in the order of their deadlines, each once") {
  Attempts attempts;
  attempts.add(id(1), 300);
  attempts.add(id(2), 100);
  attempts.add(id(3), Attempts::kNoDeadline);
  attempts.add(id(1), 50);  // OPEN and PREFILL of one attempt
  CHECK(attempts.take_expired(99).empty());
  CHECK(attempts.take_expired(300) == std::vector<AttemptId>{id(2), id(1)});
  CHECK(attempts.take_expired(1'000'000).empty());
  CHECK(attempts.take_all() == std::vector<AttemptId>{id(3)});
  CHECK(attempts.size() == 0);
}

TEST_CASE("a removed attempt does not expire") {
  Attempts attempts;
  attempts.add(id(1), 100);
  attempts.remove(id(1));
  attempts.remove(id(2));
  CHECK(attempts.take_expired(1000).empty());
}

TEST_CASE("attempts that ended by themselves are forgotten, those that live are not") {
  Attempts attempts;
  int64_t asked = 0;
  constexpr uint64_t kMany = 100'000;
  for (uint64_t i = 0; i < kMany; ++i) {
    attempts.forget_ended([&](const AttemptId& known) {
      ++asked;
      return known.id.sequence % 1000 != 0;
    });
    attempts.add(id(i), 100);
  }
  CHECK(attempts.size() < 1000);
  CHECK(asked < 3 * static_cast<int64_t>(kMany));
  size_t alive = 0;
  for (const AttemptId& left : attempts.take_all()) alive += left.id.sequence % 1000 == 0 ? 1 : 0;
  CHECK(alive == 100);
}

}  // namespace
}  // namespace baton
