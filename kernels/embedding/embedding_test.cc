#include "kernels/embedding/embedding.h"

#include <cmath>

#include "kernels/cpu/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("embedding gives the rows of the table") {
  std::mt19937 random(13);
  const auto backend = make_cpu_backend(2);
  for (Dtype dtype : kAllDtypes) {
    CAPTURE(dtype_info(dtype).name);
    constexpr int64_t kVocab = 11, kHidden = 256;
    const RandomTensor table(random, dtype, kVocab, kHidden);
    std::vector<float> all(kVocab * kHidden);
    dequantize(dtype, table.view().data, all.data(), kVocab * kHidden);
    std::vector<int32_t> ids(100);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocab);
    std::vector<float> y(ids.size() * kHidden, NAN);
    backend->embedding({.table = table.view(),
                        .ids = ids.data(),
                        .y = y.data(),
                        .num_tokens = static_cast<int32_t>(ids.size())});
    for (size_t i = 0; i < y.size(); ++i)
      CHECK_EQ(y[i], all[ids[i / kHidden] * kHidden + i % kHidden]);
  }
}

}  // namespace
}  // namespace baton
