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

TEST_CASE("a damaged GEMM table is refused") {
  CHECK_THROWS_AS(parse_gemm_table(""), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("NVIDIA H200\n"), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("130100 NVIDIA H200\n1 2 3 store 0 1 2"), ConfigError);
  CHECK_THROWS_AS(parse_gemm_table("130100 NVIDIA H200\n1 2 3 other 0 1 2 3 4 5 6 7"), ConfigError);
}

TEST_CASE("all products of up to 64 tokens are one bucket") {
  CHECK(gemm_token_bucket(1) == 64);
  CHECK(gemm_token_bucket(64) == 64);
  CHECK(gemm_token_bucket(65) == 128);
  CHECK(gemm_token_bucket(1025) == 2048);
  CHECK(gemm_token_bucket(100000) == 8192);
  CHECK(shipped_gemm_table("no such GPU").algorithms.empty());
}

}  // namespace baton
