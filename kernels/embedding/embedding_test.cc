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
    const auto prepared = backend->prepare_table(table.view());
    backend->embedding({.table = prepared.get(),
                        .ids = ids.data(),
                        .y = y.data(),
                        .num_tokens = static_cast<int32_t>(ids.size())});
    for (size_t i = 0; i < y.size(); ++i)
      CHECK_EQ(y[i], all[ids[i / kHidden] * kHidden + i % kHidden]);
  }
}

TEST_CASE("gather_rows copies the rows asked for, in their order") {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> x = {0, 1, 10, 11, 20, 21};
  const int32_t rows[] = {2, 0};
  float y[4] = {};
  backend->gather_rows({.x = x.data(), .rows = rows, .y = y, .num_rows = 2, .cols = 2});
  CHECK_EQ(y[0], 20);
  CHECK_EQ(y[1], 21);
  CHECK_EQ(y[2], 0);
  CHECK_EQ(y[3], 1);
}

}  // namespace
}  // namespace baton
