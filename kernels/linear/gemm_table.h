// Which cuBLASLt algorithm is fastest for which product, measured by gemm_table_tool on one model
// of GPU and shipped as text (tables/<gpu>.txt). First line: "<cuBLASLt version> <GPU name>"; then
// one line a product:
//   rows cols tokens_max store|add|float  algorithm (8 words, hexadecimal)  microseconds
// An algorithm's words mean something to the cuBLASLt that wrote them only; another version
// ignores the table.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

namespace baton {

enum class GemmEpilogue : uint8_t { kStore, kAdd, kFloat };
const char* gemm_epilogue_name(GemmEpilogue epilogue);

// Products of up to so many tokens are one bucket.
inline constexpr int32_t kSmallTokens = 64;
// The bucket of a product: the next power of two from kSmallTokens to kLargeTokens.
inline constexpr int32_t kLargeTokens = 8192;
int32_t gemm_token_bucket(int32_t num_tokens);

struct GemmKey {
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t bucket = 0;
  GemmEpilogue epilogue = GemmEpilogue::kStore;
  auto operator<=>(const GemmKey&) const = default;
};
using GemmAlgorithm = std::array<uint64_t, 8>;

struct GemmTable {
  uint64_t library_version = 0;  // 0: no table
  std::string gpu_name;
  std::map<GemmKey, GemmAlgorithm> algorithms;
};

// Throws ConfigError for a damaged table.
GemmTable parse_gemm_table(std::string_view text);
std::string gemm_table_line(const GemmKey& key, const GemmAlgorithm& algorithm, double time_us);

// The table shipped for this model of GPU; an empty one if there is none.
GemmTable shipped_gemm_table(const std::string& gpu_name);

}  // namespace baton
