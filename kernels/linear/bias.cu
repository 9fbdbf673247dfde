// One element a thread: any number of rows, any alignment. See bias_cuda.h.
#include <cuda_fp16.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/linear/bias_cuda.h"

namespace baton {
namespace {

constexpr int kThreads = 256;

template <typename Y>
__global__ void put_bias_kernel(const float* bias, int64_t rows, bool add, Y* y, int64_t y_stride) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int64_t row = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (row >= rows) return;
  Y* out = y + blockIdx.x * y_stride + row;
  *out = static_cast<Y>(bias[row] + (add ? static_cast<float>(*out) : 0.0f));
}

}  // namespace

void put_bias_cuda(const float* bias, int64_t rows, int32_t num_tokens, GemmEpilogue epilogue,
                   void* y, int64_t y_stride, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(num_tokens),
                                       static_cast<unsigned>((rows + kThreads - 1) / kThreads)),
                          .block = dim3(kThreads)};
  const bool add = epilogue == GemmEpilogue::kAdd;
  if (has_float_result(epilogue)) {
    launch("linear bias", shape, stream, put_bias_kernel<float>, bias, rows, add,
           static_cast<float*>(y), y_stride);
  } else {
    launch("linear bias", shape, stream, put_bias_kernel<__half>, bias, rows, add,
           static_cast<__half*>(y), y_stride);
  }
}

}  // namespace baton
