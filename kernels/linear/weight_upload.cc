#include "kernels/linear/weight_upload.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/linear/weight_convert.h"

namespace baton {
namespace {

// Large enough for a disk's and the link's full rate with as many of them under way as there are
// threads; small enough that pinning them all is a small part of a load.
constexpr int64_t kPieceBytes = 2 << 20;
// One is filled while the other one is on its way.
constexpr int kSlots = 2;

class CudaWeightLane final : public WeightLane {
 public:
  explicit CudaWeightLane(int32_t device) : device_(device) {}
  ~CudaWeightLane() override { cudaStreamSynchronize(stream_.get()); }  // before the buffers go

  // Pinning all lanes' buffers takes tens of milliseconds, the time of some GB on the link. Here it
  // runs beside the lanes that have theirs and read already.
  void begin() override {
    cuda_check(cudaSetDevice(device_), "cudaSetDevice");
    for (Slot& slot : slots_) slot.staged = PinnedBuffer(kPieceBytes);
  }

  std::byte* free_buffer() override {
    next_ = (next_ + 1) % kSlots;
    slots_[next_].free.synchronize();
    return slots_[next_].staged.data();
  }

  void send(const WeightPiece& piece) override {
    Slot& slot = slots_[next_];
    const bool convert = piece.dtype != Dtype::kBF16;
    if (convert && slot.landed.data() == nullptr) slot.landed = DeviceBuffer(kPieceBytes);
    void* landing = convert ? static_cast<void*>(slot.landed.data()) : piece.to;
    cuda_check(cudaMemcpyAsync(landing, slot.staged.data(), static_cast<size_t>(piece.bytes),
                               cudaMemcpyHostToDevice, stream_.get()),
               "weight upload");
    if (convert) {
      convert_to_bf16_cuda(piece.dtype, landing, piece.to, piece.elems, stream_.get());
    }
    slot.free.record(stream_.get());
  }

  void finish() override {
    stream_.synchronize();
    for (Slot& slot : slots_) slot.staged = PinnedBuffer();
  }

 private:
  struct Slot {
    PinnedBuffer staged;
    DeviceBuffer landed;                     // of what has to be converted
    CudaEvent free = CudaEvent::sleeping();  // after the last use of both
  };
  const int32_t device_;
  CudaStream stream_;
  Slot slots_[kSlots];
  int next_ = 0;
};

std::vector<std::unique_ptr<WeightLane>> make_lanes(int32_t device, int32_t threads) {
  std::vector<std::unique_ptr<WeightLane>> lanes;
  for (int32_t i = 0; i < threads; ++i) lanes.push_back(std::make_unique<CudaWeightLane>(device));
  return lanes;
}

void check_shape(const TensorView& view) {
  const DtypeInfo& info = dtype_info(view.dtype);
  const int64_t multiple = std::max<int64_t>(8, info.block_elems);
  if (view.cols % multiple != 0) {
    throw ConfigError(std::string("weight '") + view.name + "' of type " + info.name + ": got " +
                      std::to_string(view.cols) + " columns, want a multiple of " +
                      std::to_string(multiple) + " on CUDA");
  }
}

}  // namespace

WeightUploader::WeightUploader(int32_t device, int32_t threads)
    : pipeline_(make_lanes(device, threads), kPieceBytes) {}

void WeightUploader::upload(std::span<const TensorView> stacked,
                            std::shared_ptr<const DeviceBuffer> to) {
  Bf16* at = to->as<Bf16>();
  for (const TensorView& view : stacked) {
    check_shape(view);
    if (view.source != nullptr || view.data != nullptr) {
      pipeline_.add(view, at, to);
    } else {
      const float spread = 1.0F / std::sqrt(static_cast<float>(view.cols));
      fill_random_cuda(next_seed_++, spread, at, view.rows * view.cols, random_stream_.get());
    }
    at += view.rows * view.cols;
  }
}

void WeightUploader::finish(const std::function<void(double)>& progress) {
  pipeline_.finish(progress);
  random_stream_.synchronize();
}

}  // namespace baton
