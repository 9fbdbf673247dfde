#include "kernels/cuda/tensor_map.h"

#include <iterator>

#include "base/check.h"
#include "kernels/cuda/driver.h"

namespace baton {

CUtensorMap make_tensor_map(const char* op, const void* data, std::span<const uint64_t> sizes,
                            std::span<const uint64_t> strides_bytes, std::span<const uint32_t> box,
                            CUtensorMapL2promotion promotion) {
  static const CudaDriver driver = load_cuda_driver();  // looked up once: this runs in every layer
  constexpr uint32_t kSteps[] = {1, 1, 1, 1, 1};
  CHECK_LE(sizes.size(), std::size(kSteps)) << op;
  CHECK_EQ(strides_bytes.size() + 1, sizes.size()) << op;
  CHECK_EQ(box.size(), sizes.size()) << op;
  CUtensorMap map;
  driver_check(driver,
               driver.tensor_map_encode_tiled(
                   &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, static_cast<uint32_t>(sizes.size()),
                   const_cast<void*>(data), sizes.data(), strides_bytes.data(), box.data(), kSteps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
               op);
  return map;
}

}  // namespace baton
