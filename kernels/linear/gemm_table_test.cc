#include "kernels/linear/gemm_table.h"

#include "base/status.h"

#include "tests/doctest.h"

namespace baton {

TEST_CASE("a GEMM table survives being written and read") {
  const GemmKey key{28672, 4096, 512, GemmEpilogue::kAdd};
  const GemmAlgorithm algorithm{0, 1, 0xffffffffffffffffULL, 3, 4, 5, 6, 0x0123456789abcdefULL};
  const GemmTable table =
      parse_gemm_table("130100 NVIDIA H200\n" + gemm_table_line(key, algorithm, 12.34) + "\n");
  CHECK(table.library_version == 130100);
  CHECK(table.gpu_name == "NVIDIA H200");
  REQUIRE(table.algorithms.size() == 1);
  CHECK(table.algorithms.begin()->first == key);
  CHECK(table.algorithms.begin()->second == algorithm);
}

TEST_CASE("a GEMM table's choices for few tokens survive being written and read") {
  const SmallChoice choices[] = {{SmallKernel::kCublas, {}},
                                 {SmallKernel::kSkinny, {}},
                                 {SmallKernel::kStream, {.slices = 4, .tile_rows = 192}}};
  for (const SmallChoice& choice : choices) {
    const GemmKey key{6144, 4096, 32, GemmEpilogue::kStore};
    const GemmTable table =
        parse_gemm_table("130100 NVIDIA H200\n" + gemm_table_line(key, choice, 10.9) + "\n");
    CHECK(table.algorithms.empty());
    REQUIRE(table.small.size() == 1);
    CHECK(table.small.begin()->first == key);
    CHECK(table.small.begin()->second == choice);
  }
  const std::string head = "130100 NVIDIA H200\n", line = "64 64 8 store skinny 1.0\n";
  CHECK(parse_gemm_table(head).digest != parse_gemm_table(head + line).digest);
  CHECK(small_token_bucket(1) == 8);
  CHECK(small_token_bucket(9) == 16);
  CHECK(small_token_bucket(128) == 128);
}

TEST_CASE("the table shipped for an H200 says how few tokens are computed") {
  const GemmTable table = load_gemm_table("", "NVIDIA H200");
  for (const int32_t bucket : kSmallBuckets) {
    CAPTURE(bucket);
    CHECK(table.small.contains({28672, 4096, bucket, GemmEpilogue::kStore}));
  }
}

TEST_CASE("a damaged GEMM table is refused") {
  CHECK_THROWS_AS(parse_gemm_table(""), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("NVIDIA H200\n"), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("130100 NVIDIA H200\n1 2 3 store 0 1 2"), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("130100 NVIDIA H200\n1 2 3 other 0 1 2 3 4 5 6 7"), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("130100 NVIDIA H200\n1 2 3 store what 1.0"), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("130100 NVIDIA H200\n1 2 3 store stream 4"), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("130100 NVIDIA H200\n1 2 3 store stream 3 64 1.0"), ConfigError);
  CHECK_THROWS_AS(load_gemm_table("/no/such/table", "NVIDIA H200"), ConfigError);
}

TEST_CASE("all products of up to 64 tokens are one bucket") {
  CHECK(gemm_token_bucket(1) == 64);
  CHECK(gemm_token_bucket(64) == 64);
  CHECK(gemm_token_bucket(65) == 128);
  CHECK(gemm_token_bucket(1025) == 2048);
  CHECK(gemm_token_bucket(100000) == 8192);
  CHECK(shipped_gemm_table("no such GPU").empty());
  CHECK(load_gemm_table("", "no such GPU").algorithms.empty());
}

}  // namespace baton
