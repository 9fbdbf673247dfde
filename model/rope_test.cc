#include "model/rope.h"

#include <cmath>

#include "tests/doctest.h"

using namespace baton;

TEST_CASE("the plain table is cos and sin of position times theta^(-2i/d)") {
  const std::vector<float> table = rope_table({.theta = 10000.0, .rotary_dim = 8}, {}, 5);
  REQUIRE(table.size() == 40);
  for (int position = 0; position < 5; ++position) {
    for (int i = 0; i < 4; ++i) {
      const double angle = position * std::pow(10000.0, -i / 4.0);
      CHECK(table[position * 8 + i] == doctest::Approx(std::cos(angle)).epsilon(1e-6));
      CHECK(table[position * 8 + 4 + i] == doctest::Approx(std::sin(angle)).epsilon(1e-6));
    }
  }
}

TEST_CASE("linear scaling divides every frequency, factors of a GGUF file theirs") {
  const RopeConfig plain{.rotary_dim = 8};
  RopeConfig linear = plain;
  linear.scaling = RopeScaling::kLinear;
  linear.factor = 4;
  const std::vector<float> base = rope_frequencies(plain, {});
  const std::vector<float> scaled = rope_frequencies(linear, {});
  const std::vector<float> factors = rope_frequencies(plain, {1, 2, 4, 8});
  for (size_t i = 0; i < 4; ++i) {
    CHECK(scaled[i] == doctest::Approx(base[i] / 4));
    CHECK(factors[i] == doctest::Approx(base[i] / (1 << i)));
  }
}

TEST_CASE("llama3 scaling keeps short waves, divides long ones") {
  const RopeConfig rope{.theta = 500000.0,
                        .rotary_dim = 128,
                        .scaling = RopeScaling::kLlama3,
                        .factor = 8,
                        .original_context_len = 8192};
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const std::vector<float> base = rope_frequencies(plain, {});
  const std::vector<float> scaled = rope_frequencies(rope, {});
  CHECK(scaled.front() == base.front());
  CHECK(scaled.back() == doctest::Approx(base.back() / 8));
  for (size_t i = 1; i < base.size(); ++i) {
    CHECK(scaled[i] <= base[i]);
    CHECK(scaled[i] >= base[i] / 8.001F);
    CHECK(scaled[i] < scaled[i - 1]);
  }
}

TEST_CASE("YaRN keeps short waves, divides long ones, and scales cos and sin") {
  const RopeConfig rope{.theta = 10000.0,
                        .rotary_dim = 64,
                        .scaling = RopeScaling::kYarn,
                        .factor = 4,
                        .original_context_len = 2048,
                        .attention_factor = 1.25};
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const std::vector<float> base = rope_frequencies(plain, {});
  const std::vector<float> scaled = rope_frequencies(rope, {});
  CHECK(scaled.front() == doctest::Approx(base.front()));
  CHECK(scaled.back() == doctest::Approx(base.back() / 4));
  CHECK(rope_table(rope, {}, 1)[0] == 1.25F);
}
