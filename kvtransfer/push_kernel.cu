#include "kernels/cuda/error.h"
#include "kvtransfer/push_kernel.h"

namespace baton {
namespace {

constexpr int kThreads = 1024;
constexpr int kLoads = 4;                       // under way in each thread
constexpr uint32_t kChunk = kThreads * kLoads;  // units that a block moves at a time: 64 KiB

// Chunks of all slices in turn, over the blocks.
__global__ void __launch_bounds__(kThreads)
    push_slices_kernel(const __grid_constant__ PushSlices slices) {
  uint32_t chunk = blockIdx.x;
  for (int s = 0; s < slices.count; ++s) {
    const uint32_t units = slices.units[s];
    const uint32_t chunks = (units + kChunk - 1) / kChunk;
    const auto* src = reinterpret_cast<const uint4*>(slices.src[s]);
    auto* dst = reinterpret_cast<uint4*>(slices.dst[s]);
    for (; chunk < chunks; chunk += gridDim.x) {
      uint4 values[kLoads];
      const uint32_t first = chunk * kChunk + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (first + i * kThreads < units) values[i] = src[first + i * kThreads];
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (first + i * kThreads < units) dst[first + i * kThreads] = values[i];
      }
    }
    chunk -= chunks;
  }
}

}  // namespace

void push_slices(const PushSlices& slices, int32_t sms, cudaStream_t stream) {
  push_slices_kernel<<<sms, kThreads, 0, stream>>>(slices);
  check_launch("push a slice");
}

}  // namespace baton
