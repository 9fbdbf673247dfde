#include "model/plain_slabs.h"

#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/memory.h"

namespace baton {
namespace {

constexpr int64_t kAlignmentBytes = 256;

class PlainSlabMemory final : public SlabMemory {
 public:
  explicit PlainSlabMemory(int32_t device) : device_(device) {}

  int64_t granularity() const override { return kAlignmentBytes; }
  std::byte* reserve(int64_t bytes) override {
    CHECK(buffer_.data() == nullptr) << "one range a pool";
    cuda_check(cudaSetDevice(device_), "KV pool: device");
    buffer_ = DeviceBuffer(bytes);
    return buffer_.data();
  }
  Slab make_slab(std::byte* base, int64_t bytes) override {
    return {.fd = {}, .base = base, .bytes = bytes, .fabric_handle = {}};
  }

 private:
  const int32_t device_;
  DeviceBuffer buffer_;
};

}  // namespace

std::unique_ptr<SlabMemory> plain_slab_memory(int32_t device) {
  return std::make_unique<PlainSlabMemory>(device);
}

}  // namespace baton
