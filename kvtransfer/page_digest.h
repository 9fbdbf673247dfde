// The digest of pages that lie in a GPU's memory (page_hasher.h has the one for the host's): sums,
// which any number of threads can make in any order.
//
// Format: of the 8-byte little-endian words w[i] of a page, modulo 2^64,
//   h[i] = mix(w[i] + (i + 1) * 0x9e3779b97f4a7c15),  low = sum of h[i],
//   high = sum of mix(h[i] ^ 0xc2b2ae3d27d4eb4f),
// where mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace baton {

inline constexpr int32_t kDigestPagesMax = 64;  // of one launch: they travel as its argument

struct DigestPages {
  const std::byte* pages[kDigestPagesMax];  // device memory, aligned to 16 bytes
  int32_t count = 0;
  int64_t page_bytes = 0;  // a multiple of 16
};

struct WordSums {
  uint64_t low = 0, high = 0;
};

__host__ __device__ inline uint64_t mix_word(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

__host__ __device__ inline void add_word(uint64_t word, uint64_t index, WordSums* sums) {
  const uint64_t h = mix_word(word + (index + 1) * 0x9e3779b97f4a7c15);
  sums->low += h;
  sums->high += mix_word(h ^ 0xc2b2ae3d27d4eb4f);
}

// `sums`: device memory, [count], zero before. Enqueues only.
void digest_pages(const DigestPages& pages, WordSums* sums, cudaStream_t stream);

}  // namespace baton
