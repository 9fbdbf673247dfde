// Compiled once per ISA.
#include "kernels/cpu/isa_ops.h"

namespace baton::BATON_ISA {
namespace {

void norm_head(float* head, const float* weight, int32_t head_dim, float eps) {
  const RmsNormArgs<float> args = {.x = head,
                                   .weight = weight,
                                   .y = head,
                                   .rows = 1,
                                   .cols = head_dim,
                                   .x_stride = head_dim,
                                   .y_stride = head_dim,
                                   .eps = eps};
  rms_norm(args, 0, 1);
}

// Element i turns with element i + half.
void rotate_half(float* head, const float* cosines, int32_t half) {
  const float* sines = cosines + half;
  for (int32_t i = 0; i < half; i += 16) {
    const int32_t n = half - i < 16 ? half - i : 16;
    const F32x16 a = load_first(head + i, n), b = load_first(head + half + i, n);
    const F32x16 c = load_first(cosines + i, n), s = load_first(sines + i, n);
    store_first(head + i, a * c - b * s, n);
    store_first(head + half + i, b * c + a * s, n);
  }
}

// Element 2 i turns with element 2 i + 1.
void rotate_interleaved(float* head, const float* cosines, int32_t half) {
  const float* sines = cosines + half;
  for (int32_t i = 0; i < half; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cosines[i] - b * sines[i];
    head[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void rotate(const RopeKvArgs<float>& args, float* head, int32_t position) {
  const float* cosines = args.cos_sin + static_cast<int64_t>(position) * args.rotary_dim;
  if (args.interleaved) {
    rotate_interleaved(head, cosines, args.rotary_dim / 2);
  } else {
    rotate_half(head, cosines, args.rotary_dim / 2);
  }
}

void write_float32(const float* src, std::byte* dst, int32_t n) {
  __builtin_memcpy(dst, src, n * sizeof(float));
}

void write_half(const float* src, std::byte* dst, int32_t n) {
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store_f16(dst + 2 * i, load(src + i));
  if (i < n) {
    uint16_t last[16];
    store_f16(last, load_first(src + i, n - i));
    __builtin_memcpy(dst + 2 * i, last, 2 * (n - i));
  }
}

void write_bfloat(const float* src, std::byte* dst, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    const uint16_t bfloat = bfloat_from_float(src[i]);
    __builtin_memcpy(dst + 2 * i, &bfloat, sizeof(bfloat));
  }
}

void write_head(const PagedLayer& kv, int32_t slot, int32_t head_of_both, const float* src) {
  std::byte* dst = kv_head_address(kv, slot / kv.page_tokens, slot % kv.page_tokens, head_of_both);
  switch (kv.dtype) {
    case Dtype::kF16:
      return write_half(src, dst, kv.head_dim);
    case Dtype::kBF16:
      return write_bfloat(src, dst, kv.head_dim);
    default:
      return write_float32(src, dst, kv.head_dim);
  }
}

}  // namespace

void rope_kv(const RopeKvArgs<float>& args, int32_t token_begin, int32_t token_end) {
  const PagedLayer& kv = args.kv;
  const int32_t rotated = args.num_heads + kv.num_kv_heads;
  const int64_t stride = static_cast<int64_t>(rotated + kv.num_kv_heads) * kv.head_dim;
  for (int32_t token = token_begin; token < token_end; ++token) {
    float* row = args.qkv + token * stride;
    for (int32_t h = 0; h < rotated; ++h) {
      float* head = row + static_cast<int64_t>(h) * kv.head_dim;
      const float* weight = h < args.num_heads ? args.q_norm : args.k_norm;
      if (weight != nullptr) norm_head(head, weight, kv.head_dim, args.norm_eps);
      rotate(args, head, args.positions[token]);
    }
    if (args.q != args.qkv) {
      __builtin_memcpy(args.q + token * args.q_stride, row,
                       sizeof(float) * args.num_heads * kv.head_dim);
    }
    const float* keys_values = row + static_cast<int64_t>(args.num_heads) * kv.head_dim;
    for (int32_t h = 0; h < 2 * kv.num_kv_heads; ++h) {
      write_head(kv, args.slot_mapping[token], h,
                 keys_values + static_cast<int64_t>(h) * kv.head_dim);
    }
  }
}

}  // namespace baton::BATON_ISA
