#include "kernels/linear/weight_upload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/cpu/half.h"
#include "kernels/linear/weight_convert.h"

namespace baton {
namespace {

constexpr int64_t kStageBytes = 32 << 20;

bool is_quantised(Dtype dtype) {
  return dtype_info(dtype).block_elems > 1;
}

// Of a row in the pinned buffer: as in the file for float types, bf16 for quantised ones.
int64_t staged_row_bytes(const TensorView& view) {
  return is_quantised(view.dtype) ? view.cols * 2 : dtype_bytes(view.dtype, view.cols);
}

void stage_row(const TensorView& view, int64_t row, std::byte* to) {
  const int64_t row_bytes = dtype_bytes(view.dtype, view.cols);
  const auto* from = static_cast<const std::byte*>(view.data) + row * row_bytes;
  if (!is_quantised(view.dtype)) {
    std::memcpy(to, from, static_cast<size_t>(row_bytes));
    return;
  }
  std::vector<float> values(static_cast<size_t>(view.cols));
  dequantize(view.dtype, from, values.data(), view.cols);
  auto* bits = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < view.cols; ++i) bits[i] = bfloat_from_float(values[i]);
}

void check_shape(const TensorView& view) {
  const DtypeInfo& info = dtype_info(view.dtype);
  const int64_t multiple = std::max<int64_t>(8, info.block_elems);
  if (view.cols % multiple != 0) {
    throw ConfigError(std::string("weight of type ") + info.name + ": got " +
                      std::to_string(view.cols) + " columns, want a multiple of " +
                      std::to_string(multiple) + " on CUDA");
  }
  if (staged_row_bytes(view) > kStageBytes) {
    throw ConfigError("weight: got rows of " + std::to_string(view.cols) +
                      " columns, which is more than a staging buffer holds");
  }
}

}  // namespace

WeightUploader::WeightUploader(int32_t threads) : threads_(threads) {
  for (Stage& stage : stages_) {
    stage.host = PinnedBuffer(kStageBytes);
    stage.device = DeviceBuffer(kStageBytes);
  }
}

void WeightUploader::upload(std::span<const TensorView> stacked, Bf16* to, cudaStream_t user) {
  for (const TensorView& view : stacked) {
    check_shape(view);
    if (view.data != nullptr) {
      upload_one(view, to);
    } else {
      const float spread = 1.0F / std::sqrt(static_cast<float>(view.cols));
      fill_random_cuda(next_seed_++, spread, to, view.rows * view.cols, stream_.get());
    }
    to += view.rows * view.cols;
  }
  done_.record(stream_.get());
  cuda_check(cudaStreamWaitEvent(user, done_.get()), "weight upload");
}

void WeightUploader::upload_one(const TensorView& view, Bf16* to) {
  const int64_t rows_a_stage = std::max<int64_t>(1, kStageBytes / staged_row_bytes(view));
  for (int64_t row = 0; row < view.rows; row += rows_a_stage) {
    const int64_t num_rows = std::min(rows_a_stage, view.rows - row);
    upload_rows(view, row, num_rows, to + row * view.cols);
  }
}

void WeightUploader::upload_rows(const TensorView& view, int64_t first_row, int64_t num_rows,
                                 Bf16* to) {
  Stage& stage = stages_[next_stage_];
  next_stage_ = 1 - next_stage_;
  stage.free.synchronize();
  const int64_t row_bytes = staged_row_bytes(view);
  // Several pieces a thread: page faults of a mapped file take their time in uneven portions.
  const int64_t pieces = std::min<int64_t>(num_rows, 4 * threads_.threads());
  threads_.parallel_for(pieces, [&](int64_t piece, int32_t) {
    const int64_t end = num_rows * (piece + 1) / pieces;
    for (int64_t row = num_rows * piece / pieces; row < end; ++row) {
      stage_row(view, first_row + row, stage.host.data() + row * row_bytes);
    }
  });
  const bool convert = view.dtype == Dtype::kF16 || view.dtype == Dtype::kF32;
  void* landing = convert ? static_cast<void*>(stage.device.data()) : to;
  cuda_check(cudaMemcpyAsync(landing, stage.host.data(), static_cast<size_t>(num_rows * row_bytes),
                             cudaMemcpyHostToDevice, stream_.get()),
             "weight upload");
  if (convert) {
    convert_to_bf16_cuda(view.dtype, landing, to, num_rows * view.cols, stream_.get());
  }
  stage.free.record(stream_.get());
}

}  // namespace baton
