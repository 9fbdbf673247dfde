// What the tests and benchmarks of the CUDA kernels share: arrays on the device, poisoned outputs,
// and the comparison with a reference.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/activation_types.h"
#include "kernels/cpu/half.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/memory.h"

namespace baton {

// Tests of kernels pass where there is nothing to run them on, and say so.
inline bool no_gpu() {
  if (cuda_device_count() > 0) return false;
  static const bool told = std::puts("no GPU here: skipped") >= 0;
  return told;
}

template <typename E>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<E>& values)
      : buffer_(static_cast<int64_t>(values.size() * sizeof(E))), count_(values.size()) {
    cuda_check(cudaMemcpy(buffer_.data(), values.data(), count_ * sizeof(E), cudaMemcpyDefault),
               "copy to the device");
  }
  // All bits set: NaN in every float type, -1 in integers.
  explicit DeviceArray(size_t count)
      : buffer_(static_cast<int64_t>(count * sizeof(E))), count_(count) {
    cuda_check(cudaMemset(buffer_.data(), 0xff, count * sizeof(E)), "poison");
  }
  E* data() const { return buffer_.as<E>(); }
  size_t size() const { return count_; }
  // Waits for all work on the device.
  std::vector<E> host() const {
    cuda_check(cudaDeviceSynchronize(), "wait");
    std::vector<E> values(count_);
    cuda_check(cudaMemcpy(values.data(), buffer_.data(), count_ * sizeof(E), cudaMemcpyDefault),
               "copy from the device");
    return values;
  }

 private:
  DeviceBuffer buffer_;
  size_t count_;
};

inline std::vector<Bf16> to_bf16(const std::vector<float>& values) {
  std::vector<Bf16> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i].bits = bfloat_from_float(values[i]);
  return result;
}
inline std::vector<float> to_floats(const std::vector<Bf16>& values) {
  std::vector<float> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = float_from_bfloat(values[i].bits);
  return result;
}
inline std::vector<F16> to_half(const std::vector<float>& values) {
  std::vector<F16> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i].bits = half_from_float(values[i]);
  return result;
}
inline std::vector<float> to_floats(const std::vector<F16>& values) {
  std::vector<float> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = float_from_half(values[i].bits);
  return result;
}
// What a GPU computes from: the CPU reference gets the same rounded inputs.
inline std::vector<float> rounded_to_bf16(const std::vector<float>& values) {
  return to_floats(to_bf16(values));
}

inline std::vector<float> rounded_to_half(const std::vector<float>& values) {
  return to_floats(to_half(values));
}

template <typename E>
bool same_bits(const std::vector<E>& a, const std::vector<E>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0;
}

// ||a - b|| / ||b||; not a number where an element is none.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace baton
