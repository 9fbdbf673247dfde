// One block a row, eight elements a thread. See embedding_cuda.h.
#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/embedding/embedding_cuda.h"

namespace baton {
namespace {

template <typename E>
__global__ void copy_rows_kernel(const E* table, int64_t table_rows, const int32_t* rows, float* y,
                                 int32_t cols) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int32_t row = rows[blockIdx.x];
  if (row < 0 || row >= table_rows) __trap();
  const E* from = table + int64_t{row} * cols;
  float* to = y + int64_t{blockIdx.x} * cols;
  for (int32_t i = threadIdx.x * kVecElems; i < cols; i += blockDim.x * kVecElems) {
    store8(to + i, load8(from + i));
  }
}

template <typename E>
void copy_rows(const char* op, const E* table, int64_t table_rows, const int32_t* rows, float* y,
               int64_t num_rows, int64_t cols, cudaStream_t stream) {
  CHECK_EQ(cols % kVecElems, 0) << op;
  const auto threads =
      static_cast<unsigned>(std::clamp<int64_t>((cols / kVecElems + 31) / 32 * 32, 32, 512));
  launch(op, {.grid = dim3(static_cast<unsigned>(num_rows)), .block = dim3(threads)}, stream,
         copy_rows_kernel<E>, table, table_rows, rows, y, static_cast<int32_t>(cols));
}

}  // namespace

void embedding_cuda(const F16* table, int64_t vocab, int64_t hidden, const int32_t* ids, float* y,
                    int32_t num_tokens, cudaStream_t stream) {
  copy_rows("embedding", table, vocab, ids, y, num_tokens, hidden, stream);
}

void gather_rows_cuda(const GatherRowsArgs<float>& args, cudaStream_t stream) {
  constexpr int64_t kAnyRow = INT64_MAX;
  copy_rows("gather_rows", args.x, kAnyRow, args.rows, args.y, args.num_rows, args.cols, stream);
}

}  // namespace baton
