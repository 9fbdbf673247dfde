#include "kernels/rope_kv/rope_kv.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/half.h"
#include "kernels/cpu/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int32_t kTokens = 21, kHeads = 6, kKvHeads = 2, kPageTokens = 16, kPages = 4;

struct Case {
  int32_t head_dim, rotary_dim;
  bool interleaved, normed;
  Dtype dtype;
};

struct Inputs {
  Inputs(std::mt19937& random, const Case& c) {
    qkv =
        random_floats(random, static_cast<int64_t>(kTokens) * (kHeads + 2 * kKvHeads) * c.head_dim);
    norm = random_floats(random, c.head_dim);
    for (int32_t p = 0; p < 100; ++p) {
      for (int32_t i = 0; i < c.rotary_dim; ++i) {
        const double angle = p / std::pow(10000.0, 2.0 * (i % (c.rotary_dim / 2)) / c.rotary_dim);
        cos_sin.push_back(
            static_cast<float>(i < c.rotary_dim / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
    for (int32_t t = 0; t < kTokens; ++t) {
      positions.push_back(3 * t + 5);
      slots.push_back((t * 13) % (kPages * kPageTokens));
    }
  }
  std::vector<float> qkv, norm, cos_sin;
  std::vector<int32_t> positions, slots;
};

std::vector<double> expected_head(const Inputs& in, const Case& c, int32_t token, int32_t head) {
  const float* src =
      in.qkv.data() + (token * (kHeads + 2 * kKvHeads) + head) * static_cast<int64_t>(c.head_dim);
  std::vector<double> x(src, src + c.head_dim);
  if (head >= kHeads + kKvHeads) return x;
  if (c.normed) {
    double squares = 0;
    for (double value : x) squares += value * value;
    for (int32_t d = 0; d < c.head_dim; ++d)
      x[d] *= in.norm[d] / std::sqrt(squares / c.head_dim + 1e-6);
  }
  std::vector<double> y = x;
  const int32_t half = c.rotary_dim / 2;
  const float* cosines = in.cos_sin.data() + in.positions[token] * c.rotary_dim;
  for (int32_t i = 0; i < half; ++i) {
    const int32_t a = c.interleaved ? 2 * i : i, b = c.interleaved ? 2 * i + 1 : i + half;
    y[a] = x[a] * cosines[i] - x[b] * cosines[half + i];
    y[b] = x[b] * cosines[i] + x[a] * cosines[half + i];
  }
  return y;
}

float stored(const PagedLayer& kv, int32_t slot, int32_t head, int32_t d) {
  const int64_t elem =
      (static_cast<int64_t>(head) * kPageTokens + slot % kPageTokens) * kv.head_dim + d;
  const std::byte* p = kv.base + slot / kPageTokens * kv.page_bytes + kv.layer_offset;
  float value;
  uint16_t half;
  std::memcpy(&half, p + 2 * elem, sizeof(half));
  if (kv.dtype == Dtype::kF16) return float_from_half(half);
  if (kv.dtype == Dtype::kBF16) return float_from_bfloat(half);
  std::memcpy(&value, p + 4 * elem, sizeof(value));
  return value;
}

void check(BackendOf<float>& backend, std::mt19937& random, const Case& c) {
  const Inputs in(random, c);
  std::vector<float> qkv = in.qkv;
  const int64_t q_row = kHeads * c.head_dim + 8;
  std::vector<float> q(static_cast<size_t>(kTokens * q_row));
  PagedLayer kv = {.page_bytes = 8 * kKvHeads * kPageTokens * c.head_dim + 64,
                   .layer_offset = 16,
                   .page_tokens = kPageTokens,
                   .num_kv_heads = kKvHeads,
                   .head_dim = c.head_dim,
                   .dtype = c.dtype};
  std::vector<std::byte> pages(kPages * kv.page_bytes);
  kv.base = pages.data();
  const float* norm = c.normed ? in.norm.data() : nullptr;
  backend.rope_kv({.qkv = qkv.data(),
                   .q = q.data(),
                   .q_stride = q_row,
                   .positions = in.positions.data(),
                   .slot_mapping = in.slots.data(),
                   .cos_sin = in.cos_sin.data(),
                   .q_norm = norm,
                   .k_norm = norm,
                   .norm_eps = 1e-6f,
                   .kv = kv,
                   .num_tokens = kTokens,
                   .num_heads = kHeads,
                   .rotary_dim = c.rotary_dim,
                   .interleaved = c.interleaved});
  const double unit = c.dtype == Dtype::kF32 ? 2e-6 : c.dtype == Dtype::kF16 ? 0x1p-11 : 0x1p-8;
  for (int32_t t = 0; t < kTokens; ++t) {
    for (int32_t h = 0; h < kHeads + 2 * kKvHeads; ++h) {
      const std::vector<double> want = expected_head(in, c, t, h);
      for (int32_t d = 0; d < c.head_dim; ++d) {
        const float got =
            h < kHeads ? q[t * q_row + h * c.head_dim + d] : stored(kv, in.slots[t], h - kHeads, d);
        const double allowed = (h < kHeads ? 2e-6 : unit) * (std::fabs(want[d]) + 1);
        CHECK_LE(std::fabs(got - want[d]), allowed);
      }
    }
  }
}

TEST_CASE("rope_kv rotates, norms and writes, every style and dtype") {
  std::mt19937 random(14);
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto backend = make_cpu_backend(2, isa.c_str());
    for (int32_t head_dim : {16, 24, 64, 80}) {
      for (bool interleaved : {false, true}) {
        for (bool normed : {false, true}) {
          for (Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
            CAPTURE(isa);
            CAPTURE(head_dim);
            CAPTURE(interleaved);
            check(*backend, random, {head_dim, head_dim, interleaved, normed, dtype});
            check(*backend, random, {head_dim, head_dim / 2, interleaved, normed, dtype});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
