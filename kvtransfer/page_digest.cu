#include "kernels/cuda/error.h"
#include "kvtransfer/page_digest.h"

namespace baton {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerPage = 64;  // a few pages alone keep a GPU busy

__device__ void add_to(uint64_t* sum, uint64_t value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffff, value, offset);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
  }
}

// Blocks (part, page).
__global__ void __launch_bounds__(kThreads)
    digest_pages_kernel(const __grid_constant__ DigestPages pages, WordSums* sums) {
  const auto* pairs = reinterpret_cast<const ulonglong2*>(pages.pages[blockIdx.y]);
  const int64_t count = pages.page_bytes / static_cast<int64_t>(sizeof(ulonglong2));
  WordSums own;
#pragma unroll 4
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += kThreads * kBlocksPerPage) {
    const ulonglong2 pair = pairs[i];
    add_word(pair.x, static_cast<uint64_t>(2 * i), &own);
    add_word(pair.y, static_cast<uint64_t>(2 * i + 1), &own);
  }
  add_to(&sums[blockIdx.y].low, own.low);
  add_to(&sums[blockIdx.y].high, own.high);
}

}  // namespace

void digest_pages(const DigestPages& pages, WordSums* sums, cudaStream_t stream) {
  digest_pages_kernel<<<dim3(kBlocksPerPage, static_cast<unsigned>(pages.count)), kThreads, 0,
                        stream>>>(pages, sums);
  check_launch("digest of pages");
}

}  // namespace baton
