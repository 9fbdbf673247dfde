// A kernel that stores pages into a peer's mapped memory, on as many multiprocessors as it is
// given: faster than the copy engines on a GPU that does nothing else, slower and in the way of
// GEMMs otherwise. Enqueues only.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace baton {

inline constexpr int32_t kPushSlicesMax = 128;      // of one launch: they travel as its argument
inline constexpr int64_t kPushAlignmentBytes = 16;  // of both addresses and of the size

struct PushSlices {
  const std::byte* src[kPushSlicesMax];  // device memory
  std::byte* dst[kPushSlicesMax];        // device memory, mapped from a peer
  uint32_t units[kPushSlicesMax];        // of kPushAlignmentBytes
  int32_t count = 0;
};

// `sms`: thread blocks, each with a multiprocessor of its own while there are any.
void push_slices(const PushSlices& slices, int32_t sms, cudaStream_t stream);

}  // namespace baton
