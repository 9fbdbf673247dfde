#include "kernels/embedding/embedding_cuda.h"

#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {

TEST_CASE("CUDA: embedding and gather_rows copy rows, as float32") {
  if (no_gpu()) return;
  std::mt19937 random(7);
  for (const int32_t cols : {8, 64, 576, 4096, 9000}) {
    CAPTURE(cols);
    const int32_t vocab = 37;
    const auto table = rounded_to_half(random_floats(random, vocab * cols));
    const std::vector<int32_t> ids{36, 0, 5, 5, 17};
    std::vector<float> expected;
    for (const int32_t id : ids) {
      expected.insert(expected.end(), table.begin() + id * cols, table.begin() + (id + 1) * cols);
    }
    const DeviceArray<F16> half_table(to_half(table));
    const DeviceArray<float> rows(table), y(ids.size() * cols), z(ids.size() * cols);
    const DeviceArray<int32_t> ids_device(ids);
    const auto count = static_cast<int32_t>(ids.size());
    embedding_cuda(half_table.data(), vocab, cols, ids_device.data(), y.data(), count, nullptr);
    gather_rows_cuda({rows.data(), ids_device.data(), z.data(), count, cols}, nullptr);
    CHECK(same_bits(y.host(), expected));
    CHECK(same_bits(z.host(), expected));
    gather_rows_cuda({rows.data(), ids_device.data(), z.data(), 0, cols}, nullptr);
  }
}

}  // namespace baton
