#include "kernels/rms_norm/rms_norm.h"

#include <cmath>

#include "kernels/cpu/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("rms_norm agrees with plain loops and leaves the gaps between rows alone") {
  std::mt19937 random(11);
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto backend = make_cpu_backend(2, isa.c_str());
    for (int32_t cols : {1, 15, 16, 17, 64, 576}) {
      for (int64_t rows : {1, 3, 70}) {
        CAPTURE(isa);
        CAPTURE(cols);
        const int64_t stride = cols + 3;
        const std::vector<float> x = random_floats(random, rows * stride, 3);
        const std::vector<float> weight = random_floats(random, cols);
        std::vector<float> y(rows * stride, 99.0f);
        backend->rms_norm({.x = x.data(),
                           .weight = weight.data(),
                           .y = y.data(),
                           .rows = rows,
                           .cols = cols,
                           .x_stride = stride,
                           .y_stride = stride,
                           .eps = 1e-5f});
        for (int64_t r = 0; r < rows; ++r) {
          double squares = 0;
          for (int32_t c = 0; c < cols; ++c)
            squares += x[r * stride + c] * static_cast<double>(x[r * stride + c]);
          const double scale = 1 / std::sqrt(squares / cols + 1e-5);
          for (int32_t c = 0; c < stride; ++c) {
            const double want = c < cols ? x[r * stride + c] * scale * weight[c] : 99.0;
            CHECK(y[r * stride + c] == doctest::Approx(want).epsilon(1e-5));
          }
        }
        // In place, row by row: the same bits.
        std::vector<float> in_place = x;
        for (int64_t r = 0; r < rows; ++r) {
          float* row = in_place.data() + r * stride;
          backend->rms_norm({.x = row,
                             .weight = weight.data(),
                             .y = row,
                             .rows = 1,
                             .cols = cols,
                             .x_stride = stride,
                             .y_stride = stride,
                             .eps = 1e-5f});
          for (int32_t c = 0; c < cols; ++c) CHECK_EQ(row[c], y[r * stride + c]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
