#include "kernels/cuda/backend_cuda.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/activation/activation_cuda.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/embedding/embedding_cuda.h"
#include "kernels/linear/linear_cuda.h"
#include "kernels/linear/weight_convert.h"
#include "kernels/linear/weight_upload.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rope_kv/rope_kv_cuda.h"

namespace baton {
namespace {

class CudaMemory final : public BackendMemory {
 public:
  explicit CudaMemory(DeviceBuffer buffer)
      : BackendMemory(buffer.data()), buffer_(std::move(buffer)) {}

 private:
  const DeviceBuffer buffer_;
};

class CudaEmbeddingTable final : public EmbeddingTable {
 public:
  CudaEmbeddingTable(int64_t rows, int64_t cols, std::shared_ptr<const DeviceBuffer> data)
      : EmbeddingTable(rows, cols), data_(std::move(data)) {}
  const F16* data() const { return data_->as<const F16>(); }

 private:
  const std::shared_ptr<const DeviceBuffer> data_;
};

class CudaBackendImpl final : public CudaBackend {
 public:
  CudaBackendImpl(int32_t index, const CudaBackendOptions& options)
      : device_(open_cuda_device(index)),
        linear_(device_,
                {.deterministic = options.deterministic, .gemm_table = options.gemm_table}),
        load_threads_(options.load_threads),
        isa_("sm_" + std::to_string(device_.capability) + "+" + linear_.numerics()) {}

  std::unique_ptr<LinearWeight> prepare_stacked(std::span<const TensorView> stacked,
                                                MatrixInput input) override;
  std::unique_ptr<EmbeddingTable> prepare_table(const TensorView& table) override;
  void finish_loading(const std::function<void(double)>& progress) override;

  std::unique_ptr<BackendMemory> allocate(int64_t bytes) override {
    return std::make_unique<CudaMemory>(DeviceBuffer(bytes));
  }
  std::unique_ptr<BackendMemory> upload(const void* data, int64_t bytes) override;

  void embedding(const EmbeddingArgs<float>& args) override {
    const auto& table = static_cast<const CudaEmbeddingTable&>(*args.table);
    embedding_cuda(table.data(), table.rows(), table.cols(), args.ids, args.y, args.num_tokens,
                   stream());
  }
  void gather_rows(const GatherRowsArgs<float>& args) override { gather_rows_cuda(args, stream()); }
  void rms_norm(const RmsNormArgs<float, F16>& args) override { rms_norm_cuda(args, stream()); }
  void linear(const LinearArgs<F16>& args) override { linear_.linear(args, stream()); }
  void add_linear(const LinearArgs<Bf16, float>& args) override {
    linear_.add_linear(args, stream());
  }
  void logits(const LinearArgs<F16, float>& args) override { linear_.logits(args, stream()); }
  void rope_kv(const RopeKvArgs<Bf16, F16>& args) override { rope_kv_cuda(args, stream()); }
  void attention(const AttentionArgs<Bf16>& args) override { attention_cuda(args, stream()); }
  void activation(const ActivationArgs<Bf16, F16>& args) override {
    activation_cuda(args, stream());
  }

  const char* isa() const override { return isa_.c_str(); }
  cudaStream_t stream() const override { return stream_.get(); }
  const CudaDevice& device() const override { return device_; }

 private:
  std::shared_ptr<const DeviceBuffer> upload_weights(std::span<const TensorView> stacked,
                                                     MatrixInput input);

  const CudaDevice device_;  // first: makes the GPU current
  CudaStream stream_;
  CudaLinear linear_;
  const int32_t load_threads_;
  const std::string isa_;
  std::optional<WeightUploader> uploader_;                    // while a model loads
  std::vector<std::shared_ptr<const DeviceBuffer>> to_half_;  // bf16 so far
  // The last table: tied models use it as their last matrix too.
  const void* table_source_ = nullptr;
  std::shared_ptr<const DeviceBuffer> table_;
};

std::shared_ptr<const DeviceBuffer> CudaBackendImpl::upload_weights(
    std::span<const TensorView> stacked, MatrixInput input) {
  int64_t rows = 0;
  for (const TensorView& part : stacked) {
    CHECK_EQ(part.cols, stacked[0].cols) << "stacked weights";
    rows += part.rows;
  }
  if (!uploader_) uploader_.emplace(device_.index, load_threads_);
  auto data = std::make_shared<DeviceBuffer>(rows * stacked[0].cols * int64_t{sizeof(Bf16)});
  uploader_->upload(stacked, data);
  if (input == MatrixInput::kNormed) to_half_.push_back(data);
  return data;
}

std::unique_ptr<LinearWeight> CudaBackendImpl::prepare_stacked(std::span<const TensorView> stacked,
                                                               MatrixInput input) {
  const TensorView& first = stacked[0];
  int64_t rows = 0;
  for (const TensorView& part : stacked) rows += part.rows;
  const bool tied = stacked.size() == 1 && first.data != nullptr && first.data == table_source_;
  return std::make_unique<CudaLinearWeight>(rows, first.cols, input,
                                            tied ? table_ : upload_weights(stacked, input));
}

std::unique_ptr<EmbeddingTable> CudaBackendImpl::prepare_table(const TensorView& table) {
  table_ = upload_weights({&table, 1}, MatrixInput::kNormed);
  table_source_ = table.data;
  return std::make_unique<CudaEmbeddingTable>(table.rows, table.cols, table_);
}

void CudaBackendImpl::finish_loading(const std::function<void(double)>& progress) {
  if (uploader_) uploader_->finish(progress);
  for (const auto& values : to_half_) {
    bf16_to_half_cuda(values->data(), values->bytes() / int64_t{sizeof(F16)}, stream());
  }
  stream_.synchronize();
  to_half_.clear();
  uploader_.reset();
  table_source_ = nullptr;
  table_.reset();
}

std::unique_ptr<BackendMemory> CudaBackendImpl::upload(const void* data, int64_t bytes) {
  DeviceBuffer copy(bytes);
  cuda_check(cudaMemcpyAsync(copy.data(), data, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                             stream()),
             "upload");
  stream_.synchronize();
  return std::make_unique<CudaMemory>(std::move(copy));
}

}  // namespace

std::unique_ptr<CudaBackend> make_cuda_backend(int32_t index, const CudaBackendOptions& options) {
  CudaBackendOptions complete = options;
  if (complete.load_threads == 0) {
    complete.load_threads =
        std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 8, 16);
  }
  return std::make_unique<CudaBackendImpl>(index, complete);
}

}  // namespace baton
