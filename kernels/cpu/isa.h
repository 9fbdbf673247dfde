// The loops of every op, once per ISA: plain structs in, no allocation, no threads. backend_cpu.cc
// checks arguments, cuts the work into tasks and calls these from the threads of the pool;
// linear_isa.cc and its like implement them.
#pragma once

#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/packed_weight.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_kv/rope_kv.h"

namespace baton {

// A linear op after checks. `weight` is packed for quantised dtypes and row-major otherwise.
struct LinearJob {
  Dtype dtype = Dtype::kF32;
  const uint8_t* weight = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  const float* x = nullptr;                 // float dtypes
  const ActivationBlock* blocks = nullptr;  // quantised dtypes
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;
  int32_t num_tokens = 0;
  bool accumulate = false;
};

// A rectangle of y. Token bounds of quantised jobs are multiples of the ISA's token_tile (or the
// end).
struct LinearTile {
  int64_t row_begin, row_end;  // row_begin is a multiple of kGroupRows
  int32_t token_begin, token_end;
};

// The query rows of a tile: tokens [token_begin, token_end) of a sequence, all query heads of one
// kv head.
struct AttentionTile {
  int32_t sequence;
  int32_t kv_head;
  int32_t token_begin, token_end;
};
constexpr int kMaxHeadDim = 512;
constexpr int kAttentionTileRows = 48;  // at most, or one token's

struct CpuIsa {
  const char* name;
  int32_t token_tile;
  void (*quantize)(const float* x, int64_t cols, int32_t num_tokens, int32_t token_begin,
                   int32_t token_end, ActivationBlock* blocks);
  void (*linear_quantized)(const LinearJob& job, const LinearTile& tile);
  void (*linear_float)(const LinearJob& job, const LinearTile& tile);
  void (*rms_norm)(const RmsNormArgs<float>& args, int64_t row_begin, int64_t row_end);
  void (*activation)(const ActivationArgs<float>& args, int64_t row_begin, int64_t row_end);
  void (*rope_kv)(const RopeKvArgs<float>& args, int32_t token_begin, int32_t token_end);
  void (*attention)(const AttentionArgs<float>& args, const AttentionTile& tile, float* scratch);
};

// Floats of scratch that `attention` needs for tiles of up to `rows` query rows.
int64_t attention_scratch_floats(int32_t rows, int32_t head_dim);

// The ISA of that name ("auto": the best this CPU has). Throws ConfigError when the CPU lacks it.
const CpuIsa& find_isa(const char* name);

namespace avx512 {
extern const CpuIsa kIsa;
}
namespace avx2 {
extern const CpuIsa kIsa;
}
namespace portable {
extern const CpuIsa kIsa;
}

}  // namespace baton
