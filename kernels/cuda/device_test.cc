#include "kernels/cuda/device.h"

#include <string>

#include "base/status.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

std::string error_of(int32_t index) {
  try {
    open_cuda_device(index);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("CUDA: a GPU that is not there is one clear line") {
  const std::string error = error_of(99);
  CHECK(error.find(cuda_device_count() == 0 ? "driver" : "device cuda:99: this machine has") !=
        std::string::npos);
  CHECK(error.find('\n') == std::string::npos);
}

TEST_CASE("CUDA: too little memory is a ConfigError, and memory can be taken again afterwards") {
  if (no_gpu()) return;
  open_cuda_device(0);
  CHECK_THROWS_AS(DeviceBuffer(int64_t{1} << 45), ConfigError);
  const DeviceBuffer small(1 << 20);
  CHECK(small.data() != nullptr);
}

TEST_CASE("CUDA: a failed launch throws with the op's name") {
  if (no_gpu()) return;
  open_cuda_device(0);
  try {
    cuda_check(cudaMemsetAsync(nullptr, 0, 16, nullptr), "rope_kv");
    CHECK(false);
  } catch (const CudaError& error) {
    CHECK(std::string(error.what()).find("rope_kv: ") == 0);
  }
  cudaGetLastError();
}

}  // namespace baton
