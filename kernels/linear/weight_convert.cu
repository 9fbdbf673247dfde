// Grid-stride loops; used while a model loads. See weight_convert.h.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/block_values.h"
#include "kernels/linear/weight_convert.h"

namespace baton {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kBlocks = 1056;

__device__ float to_float(float x) {
  return x;
}
__device__ float to_float(__half x) {
  return __half2float(x);
}

template <typename From>
__global__ void convert_kernel(const From* from, __nv_bfloat16* to, int64_t elems) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < elems; i += int64_t{gridDim.x} * kThreads) {
    to[i] = __float2bfloat16_rn(to_float(from[i]));
  }
}

// Eight elements a thread.
template <Dtype dtype>
__global__ void expand_kernel(const uint8_t* from, Bf16* to, int64_t elems, int block_elems,
                              int block_bytes) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first * 8; i < elems; i += int64_t{gridDim.x} * kThreads * 8) {
    Vec8 x;
    block_values<dtype>(from + i / block_elems * block_bytes, static_cast<int>(i % block_elems),
                        x.v);
    store8(to + i, x);
  }
}

__global__ void bf16_to_half_kernel(uint4* values, int64_t vecs) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < vecs; i += int64_t{gridDim.x} * kThreads) {
    values[i] = to_half(expand(values[i]));
  }
}

// SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
__device__ uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__global__ void fill_random_kernel(uint64_t seed, float half_range, __nv_bfloat16* to,
                                   int64_t elems) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < elems; i += int64_t{gridDim.x} * kThreads) {
    const uint64_t bits = mix((seed << 40) + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull);
    const float unit = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;  // [-1, 1)
    to[i] = __float2bfloat16_rn(unit * half_range);
  }
}

}  // namespace

void convert_to_bf16_cuda(Dtype dtype, const void* from, Bf16* to, int64_t elems,
                          cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(kBlocks), .block = dim3(kThreads), .early_start = false};
  auto* out = reinterpret_cast<__nv_bfloat16*>(to);
  if (dtype == Dtype::kF16) {
    launch("convert weights", shape, stream, convert_kernel<__half>,
           static_cast<const __half*>(from), out, elems);
  } else if (dtype == Dtype::kF32) {
    launch("convert weights", shape, stream, convert_kernel<float>, static_cast<const float*>(from),
           out, elems);
  } else {
    const DtypeInfo& info = dtype_info(dtype);
    with_block_format(dtype, [&]<Dtype kDtype>() {
      launch("expand weights", shape, stream, expand_kernel<kDtype>,
             static_cast<const uint8_t*>(from), to, elems, info.block_elems, info.block_bytes);
    });
  }
}

void bf16_to_half_cuda(void* values, int64_t elems, cudaStream_t stream) {
  launch("convert weights", {.grid = dim3(kBlocks), .block = dim3(kThreads), .early_start = false},
         stream, bf16_to_half_kernel, static_cast<uint4*>(values), elems / kVecElems);
}

void fill_random_cuda(uint64_t seed, float spread, Bf16* to, int64_t elems, cudaStream_t stream) {
  constexpr float kHalfRangeOfUnitSpread = 1.7320508f;
  launch("random weights", {.grid = dim3(kBlocks), .block = dim3(kThreads), .early_start = false},
         stream, fill_random_kernel, seed, spread * kHalfRangeOfUnitSpread,
         reinterpret_cast<__nv_bfloat16*>(to), elems);
}

}  // namespace baton
