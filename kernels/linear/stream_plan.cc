#include <algorithm>
#include <bit>

#include "kernels/linear/stream_gemm.h"

namespace baton {
namespace {

// Tokens of a middling batch: what a block reads of x beside its rows of the weights.
constexpr int64_t kTypicalTokens = 32;
// What a wave of blocks takes beside reading, about 2 us, as so many rows of 128 bytes.
constexpr int64_t kWaveRows = 512;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Multiprocessors that clusters of so many blocks can fill. A cluster lies inside one GPC, and GPCs
// have 14 to 18 multiprocessors: larger clusters leave the last ones of some idle (measured on an
// H200: 66 clusters of two at once, 30 of four, 15 of eight).
int64_t usable_sms(int32_t slices, int32_t num_sms) {
  const int32_t reached = slices > 2 ? num_sms * 10 / 11 : num_sms;
  return std::max(reached / slices * slices, slices);
}

}  // namespace

bool is_stream_plan(const StreamPlan& plan) {
  return plan.slices >= 1 && plan.slices <= 8 &&
         std::has_single_bit(static_cast<uint32_t>(plan.slices)) && plan.tile_rows >= 8 &&
         plan.tile_rows <= kTileRowsMax && plan.tile_rows % 8 == 0;
}

StreamPlan plan_stream_gemm(int64_t rows, int64_t cols, int32_t num_sms, int32_t slices,
                            int32_t tile_rows_max) {
  const int64_t stages = ceil_div(cols, kGemmStageCols);
  StreamPlan best;
  int64_t best_cost = INT64_MAX;
  for (const int32_t s : {1, 2, 4, 8}) {
    if (slices > 0 ? s != slices : s > stages && s > 1) continue;
    const int64_t sms = usable_sms(s, num_sms);
    for (int32_t tile_rows = tile_rows_max; tile_rows >= 8; tile_rows -= 8) {
      const int64_t blocks = ceil_div(rows, tile_rows) * s;
      const int64_t waves = ceil_div(blocks, tile_rows <= kLowTileRows ? 2 * sms : sms);
      const int64_t cost =
          ceil_div(blocks, sms) * (tile_rows + kTypicalTokens) * ceil_div(stages, s) +
          waves * kWaveRows;
      if (cost < best_cost) {
        best = {s, tile_rows};
        best_cost = cost;
      }
    }
  }
  return best;
}

}  // namespace baton
