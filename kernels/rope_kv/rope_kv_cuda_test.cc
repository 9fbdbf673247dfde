#include "kernels/rope_kv/rope_kv_cuda.h"

#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

struct Case {
  int32_t num_tokens, num_heads, num_kv_heads, head_dim, rotary_dim;
  bool interleaved, normed;
  Dtype dtype;
  int32_t page_tokens;
};

struct Inputs {
  Inputs(std::mt19937& random, const Case& c) {
    const int64_t heads = c.num_heads + 2 * c.num_kv_heads;
    qkv = rounded_to_half(random_floats(random, c.num_tokens * heads * c.head_dim));
    norm = random_floats(random, c.head_dim);
    cos_sin = random_floats(random, 64 * c.rotary_dim);
    for (int32_t t = 0; t < c.num_tokens; ++t) {
      positions.push_back(t * 7 % 64);
      slots.push_back(c.num_tokens - 1 - t);
    }
  }
  std::vector<float> qkv, norm, cos_sin;
  std::vector<int32_t> positions, slots;
};

// Rows of q with something between them.
int64_t q_stride(const Case& c) {
  return int64_t{c.num_heads} * c.head_dim + 8;
}

template <typename T, typename In>
RopeKvArgs<T, In> make_args(const Case& c, In* qkv, T* q, const int32_t* positions,
                            const int32_t* slots, const float* cos_sin, const float* norm,
                            std::byte* pages) {
  const int64_t layer_bytes = int64_t{2} * c.num_kv_heads * c.page_tokens * c.head_dim * 2;
  return {.qkv = qkv,
          .q = q,
          .q_stride = q_stride(c),
          .positions = positions,
          .slot_mapping = slots,
          .cos_sin = cos_sin,
          .q_norm = c.normed ? norm : nullptr,
          .k_norm = c.normed ? norm : nullptr,
          .norm_eps = 1e-6F,
          .kv = {.base = pages,
                 .page_bytes = 3 * layer_bytes,
                 .layer_offset = layer_bytes,
                 .page_tokens = c.page_tokens,
                 .num_kv_heads = c.num_kv_heads,
                 .head_dim = c.head_dim,
                 .dtype = c.dtype},
          .num_tokens = c.num_tokens,
          .num_heads = c.num_heads,
          .rotary_dim = c.rotary_dim,
          .interleaved = c.interleaved};
}

std::vector<float> page_floats(const std::vector<uint16_t>& pages, Dtype dtype) {
  std::vector<float> values(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    values[i] = dtype == Dtype::kF16 ? float_from_half(pages[i]) : float_from_bfloat(pages[i]);
  }
  return values;
}

// The elements that were written in both; NaN elsewhere must be NaN in both.
void drop_unwritten(std::vector<float>& a, std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(std::isnan(a[i]) == std::isnan(b[i]));
    if (std::isnan(a[i]) && std::isnan(b[i])) a[i] = b[i] = 0;
  }
}

std::vector<float> q_rows(const std::vector<float>& q, const Case& c) {
  std::vector<float> rows;
  for (int32_t t = 0; t < c.num_tokens; ++t) {
    const auto begin = q.begin() + t * q_stride(c);
    rows.insert(rows.end(), begin, begin + int64_t{c.num_heads} * c.head_dim);
    for (int i = -8; i < 0; ++i) CHECK(std::isnan(begin[q_stride(c) + i]));
  }
  return rows;
}

void check(BackendOf<float>& cpu, std::mt19937& random, const Case& c) {
  CAPTURE(c.num_tokens);
  CAPTURE(c.head_dim);
  CAPTURE(c.rotary_dim);
  CAPTURE(c.interleaved);
  CAPTURE(c.normed);
  Inputs in(random, c);
  const int32_t pages = (c.num_tokens + c.page_tokens - 1) / c.page_tokens;
  std::vector<uint16_t> expected_pages(
      size_t(pages) * 3 * 2 * c.num_kv_heads * c.page_tokens * c.head_dim, 0xffff);
  std::vector<float> computed_in = in.qkv, expected(c.num_tokens * q_stride(c), NAN);
  cpu.rope_kv(make_args(c, computed_in.data(), expected.data(), in.positions.data(),
                        in.slots.data(), in.cos_sin.data(), in.norm.data(),
                        reinterpret_cast<std::byte*>(expected_pages.data())));

  // Rows that only fill up a batch: their keys and values go nowhere.
  Case padded = c;
  padded.num_tokens += 3;
  const int64_t row = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
  std::vector<float> qkv = in.qkv;
  qkv.resize(qkv.size() + 3 * row, 1.0F);
  in.positions.resize(padded.num_tokens, 0);
  in.slots.resize(padded.num_tokens, -1);
  const DeviceArray<F16> qkv_device(to_half(qkv));
  const DeviceArray<Bf16> q(static_cast<size_t>(padded.num_tokens * q_stride(c)));
  const DeviceArray<int32_t> positions(in.positions), slots(in.slots);
  const DeviceArray<float> cos_sin(in.cos_sin), norm(in.norm);
  const DeviceArray<uint16_t> pages_device(expected_pages.size());
  rope_kv_cuda(
      make_args(padded, qkv_device.data(), q.data(), positions.data(), slots.data(), cos_sin.data(),
                norm.data(), reinterpret_cast<std::byte*>(pages_device.data())),
      nullptr);

  CHECK(relative_error(q_rows(to_floats(q.host()), c), q_rows(expected, c)) < 4e-3);
  std::vector<float> got = page_floats(pages_device.host(), c.dtype);
  std::vector<float> want = page_floats(expected_pages, c.dtype);
  drop_unwritten(got, want);
  CHECK(relative_error(got, want) < 1e-3);
}

}  // namespace

TEST_CASE("CUDA: rope_kv equals the CPU's, q in its buffer, k and v in their pages") {
  if (no_gpu()) return;
  std::mt19937 random(17);
  const auto cpu = make_cpu_backend(1);
  for (const int32_t head_dim : {16, 64, 80, 96, 128, 256}) {
    for (const bool interleaved : {false, true}) {
      for (const bool normed : {false, true}) {
        const Dtype dtype = normed ? Dtype::kF16 : Dtype::kBF16;
        check(*cpu, random, {1, 4, 2, head_dim, head_dim, interleaved, normed, dtype, 64});
        check(*cpu, random, {37, 5, 1, head_dim, head_dim, interleaved, normed, dtype, 16});
        check(*cpu, random, {9, 7, 7, head_dim, 16, interleaved, normed, dtype, 4});
      }
    }
  }
  check(*cpu, random, {64, 32, 8, 128, 128, false, false, Dtype::kBF16, 64});
  for (const bool interleaved : {false, true}) {  // no vectors of 8 to rotate
    check(*cpu, random, {37, 4, 2, 24, 24, interleaved, true, Dtype::kF16, 16});
    check(*cpu, random, {5, 4, 2, 64, 24, interleaved, false, Dtype::kBF16, 16});
    check(*cpu, random, {5, 3, 3, 10, 6, interleaved, true, Dtype::kBF16, 4});
  }
}

TEST_CASE("CUDA: a rotated key beyond f16 is its largest value in f16 pages of any head size") {
  if (no_gpu()) return;
  for (const int32_t head_dim : {24, 64}) {
    CAPTURE(head_dim);
    const Case c{1, 1, 1, head_dim, head_dim, false, false, Dtype::kF16, 16};
    std::vector<float> cos_sin(head_dim, 0.875F);
    std::fill(cos_sin.begin() + head_dim / 2, cos_sin.end(), -0.875F);
    const DeviceArray<F16> qkv(to_half(std::vector<float>(3 * head_dim, 60000.0F)));
    const DeviceArray<Bf16> q(static_cast<size_t>(q_stride(c)));
    const DeviceArray<int32_t> zero(std::vector<int32_t>{0});
    const DeviceArray<float> table(cos_sin);
    const size_t layer_elems = size_t{2} * c.page_tokens * head_dim;
    const DeviceArray<uint16_t> pages(3 * layer_elems);
    rope_kv_cuda(
        make_args(c, qkv.data(), q.data(), zero.data(), zero.data(), table.data(),
                  static_cast<const float*>(nullptr), reinterpret_cast<std::byte*>(pages.data())),
        nullptr);
    const std::vector<float> got = page_floats(pages.host(), c.dtype);
    CHECK(got[layer_elems] == 65504.0F);                    // 0.875 * 60000 twice
    CHECK(got[layer_elems + head_dim / 2] == 0.0F);         // the same less itself
    CHECK(got[layer_elems + layer_elems / 2] == 60000.0F);  // a value does not rotate
  }
}

}  // namespace baton
