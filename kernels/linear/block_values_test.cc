#include "kernels/linear/block_values.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

bool is_block_format(Dtype dtype) {
  return dtype_info(dtype).block_elems > 1;
}

}  // namespace

TEST_CASE("the values that a GPU's thread takes out of a block are the reference's, bit for bit") {
  std::mt19937 random(31);
  for (const Dtype dtype : kAllDtypes) {
    if (!is_block_format(dtype)) continue;
    CAPTURE(dtype_info(dtype).name);
    const DtypeInfo& info = dtype_info(dtype);
    const RandomTensor tensor(random, dtype, 64, 256);
    const auto* blocks = static_cast<const uint8_t*>(tensor.view().data);
    std::vector<float> want(64 * 256), got(64 * 256);
    dequantize(dtype, blocks, want.data(), 64 * 256);
    for (int64_t i = 0; i < 64 * 256; i += 8) {
      with_block_format(dtype, [&]<Dtype kDtype>() {
        block_values<kDtype>(blocks + i / info.block_elems * info.block_bytes,
                             static_cast<int>(i % info.block_elems), got.data() + i);
      });
    }
    CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
  }
}

}  // namespace baton
