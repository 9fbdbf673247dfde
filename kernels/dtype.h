// Element types of tensors in memory and on disk. Block types follow GGUF v3: rows are runs of
// blocks.
#pragma once

#include <cstdint>

namespace baton {

enum class Dtype : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

struct DtypeInfo {
  const char* name;     // "Q4_1"
  int32_t block_elems;  // 1, 32 or 256
  int32_t block_bytes;
};
const DtypeInfo& dtype_info(Dtype dtype);

// Bytes of `elems` elements. REQUIRES: elems is a multiple of block_elems.
int64_t dtype_bytes(Dtype dtype, int64_t elems);

// Expands `elems` elements to float32 exactly as the format defines. The slow, plain reference.
void dequantize(Dtype dtype, const void* src, float* dst, int64_t elems);

// The odd bit fields of the K formats, for those who repack them.
struct KScale {
  int scale, min;  // 6 bits each
};
// Of sub-block 0..7, from the 12 bytes of a Q4_K or Q5_K block.
KScale k_scale(const uint8_t* scales, int sub);
int q6_k_value(const uint8_t* block, int i);  // 0..63, element i of 256

}  // namespace baton
