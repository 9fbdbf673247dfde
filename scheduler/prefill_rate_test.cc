#include "scheduler/prefill_rate.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("nothing measured, nothing known") {
  PrefillRate rate;
  CHECK(rate.us_per_token(0) == 0);
  rate.measured(0, 0, 100);
  rate.measured(10, 0, 0);
  CHECK(rate.us_per_token(0) == 0);
}

TEST_CASE("the price follows what steps take, large ones more than small ones") {
  PrefillRate rate;
  rate.measured(256, 128, 256'000);
  CHECK(rate.us_per_token(0) == doctest::Approx(1000));
  rate.measured(3, 1, 9'000);  // the end of a prompt: dear, but little
  CHECK(rate.us_per_token(0) == doctest::Approx(1000).epsilon(0.05));
  for (int i = 0; i < 40; ++i) rate.measured(256, 128, 128'000);
  CHECK(rate.us_per_token(0) == doctest::Approx(500).epsilon(0.01));
}

TEST_CASE("a longer context has its own price, and a careful one before it is known") {
  PrefillRate rate;
  rate.measured(256, 500, 25'600);
  CHECK(rate.us_per_token(1000) == doctest::Approx(100));
  CHECK(rate.us_per_token(1024) == doctest::Approx(200));
  CHECK(rate.us_per_token(9000) == doctest::Approx(1600));
  rate.measured(256, 9000, 51'200);
  CHECK(rate.us_per_token(9000) == doctest::Approx(200));
  CHECK(rate.us_per_token(500) == doctest::Approx(100));
}

TEST_CASE("with only a long context known a short one costs no more") {
  PrefillRate rate;
  rate.measured(64, 100'000, 64'000);
  CHECK(rate.us_per_token(0) == doctest::Approx(1000));
  CHECK(rate.us_per_token(2'000'000'000) >= 1000);
}

TEST_CASE("a process that was stopped in mid-step does not make chunks tiny for long") {
  PrefillRate rate;
  for (int i = 0; i < 20; ++i) rate.measured(256, 0, 25'600);
  rate.measured(256, 0, 30'000'000);
  CHECK(rate.us_per_token(0) < 200);
}

}  // namespace
}  // namespace baton
