// One element a thread: any number of rows, any alignment. See bias_cuda.h.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/bias_cuda.h"

namespace baton {
namespace {

constexpr int kThreads = 256;

__global__ void put_bias_kernel(const float* bias, int64_t rows, bool add, Bf16* y,
                                int64_t y_stride) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int64_t row = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (row >= rows) return;
  auto* out = reinterpret_cast<__nv_bfloat16*>(y) + blockIdx.x * y_stride + row;
  *out = __float2bfloat16_rn(bias[row] + (add ? __bfloat162float(*out) : 0.0f));
}

}  // namespace

void put_bias_cuda(const float* bias, int64_t rows, int32_t num_tokens, bool add, Bf16* y,
                   int64_t y_stride, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(num_tokens),
                  static_cast<unsigned>((rows + kThreads - 1) / kThreads));
  launch("linear bias", {.grid = grid, .block = dim3(kThreads)}, stream, put_bias_kernel, bias,
         rows, add, y, y_stride);
}

}  // namespace baton
