// What is fastest for which product, measured by gemm_table_tool on one model of GPU and shipped as
// text (tables/<gpu>.txt). First line: "<cuBLASLt version> <GPU name>"; then one line a product,
// either cuBLASLt's algorithm for it
//   rows cols tokens_max store|add|float  algorithm (8 words, hexadecimal)  microseconds
// or which kernel computes few tokens
//   rows cols tokens_max store|add|float  cublas | skinny | stream <slices> <tile_rows>
//   microseconds
// An algorithm's words mean something to the cuBLASLt that wrote them only; another version
// ignores them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "kernels/linear/gemm_epilogue.h"
#include "kernels/linear/stream_gemm.h"

namespace baton {

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

// Products of few tokens come in finer buckets: powers of two from 8 to kStreamTokensMax.
inline constexpr int32_t kSmallBuckets[] = {8, 16, 32, 64, 128};
int32_t small_token_bucket(int32_t num_tokens);

enum class SmallKernel : uint8_t { kCublas, kSkinny, kStream };
struct SmallChoice {
  SmallKernel kernel = SmallKernel::kCublas;
  StreamPlan plan;  // of kStream
  bool operator==(const SmallChoice&) const = default;
};

struct GemmTable {
  uint64_t library_version = 0;  // 0: no table
  uint32_t digest = 0;           // of the text: other tables, other bits
  std::string gpu_name;
  std::map<GemmKey, GemmAlgorithm> algorithms;
  std::map<GemmKey, SmallChoice> small;  // bucket: one of kSmallBuckets
};

// Throws ConfigError for a damaged table.
GemmTable parse_gemm_table(std::string_view text);
std::string gemm_table_line(const GemmKey& key, const GemmAlgorithm& algorithm, double time_us);
std::string gemm_table_line(const GemmKey& key, const SmallChoice& choice, double time_us);
std::string small_choice_name(const SmallChoice& choice);  // as in a line

// The text of the table shipped for this model of GPU; empty if there is none.
std::string_view shipped_gemm_table(const std::string& gpu_name);
// That of a file, or the shipped one where `path` is empty. Throws ConfigError.
GemmTable load_gemm_table(const std::string& path, const std::string& gpu_name);

}  // namespace baton
