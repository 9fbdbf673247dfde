// Which batch sizes of decode steps get a CUDA graph.
#pragma once

#include <cstdint>
#include <vector>

namespace baton {

// Batch sizes that get a graph, up to the first that holds `rows_max`; a batch is padded up to the
// next. Fine where a step's time depends on it, so that padding costs at most a few per cent.
inline std::vector<int32_t> graph_buckets(int32_t rows_max) {
  std::vector<int32_t> buckets = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  while (buckets.back() < rows_max) buckets.push_back(buckets.back() + 128);
  while (buckets.size() > 1 && buckets[buckets.size() - 2] >= rows_max) buckets.pop_back();
  return buckets;
}

// The smallest that holds `rows`; 0: none.
inline int32_t bucket_for(const std::vector<int32_t>& buckets, int32_t rows) {
  for (const int32_t bucket : buckets) {
    if (bucket >= rows) return bucket;
  }
  return 0;
}

}  // namespace baton
