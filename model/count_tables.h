// How often each choice with penalties has seen each token, in the GPU's memory: a row of `counts`
// a choice, to which the sampling kernel adds the tokens that it draws, so that a step can follow
// before the host knows them. Built from a choice's tokens when it first needs one. Enqueues on the
// given stream. Engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "model/count_places.h"
#include "model/cuda_forward.h"
#include "model/step_edits.h"

namespace baton {

class CountTables {
 public:
  // `num_tables`: most samples of a step. Takes num_tables * vocab_size * 4 bytes.
  CountTables(int32_t num_tables, int32_t vocab_size);

  // `place` in [0, kStepsInFlight): of the step; its last step has ended.
  void begin_step(int32_t place, const std::vector<int32_t>& closed_slots);
  // Sets the row's counts. Waits for the GPU only if the tables to be built in one step have more
  // entries than kEntries and than the vocabulary: after a burst of very long prompts.
  void use(StepEdits::Row* row, cudaStream_t stream);

 private:
  static constexpr int32_t kEntries = 1 << 16;
  TokenCount* room_for(size_t count, cudaStream_t stream);

  const int32_t vocab_size_;
  const size_t entries_max_;
  CountPlaces places_;
  DeviceBuffer tables_;                               // int32 [num_tables, vocab_size]
  std::array<PinnedBuffer, kStepsInFlight> entries_;  // TokenCount [entries_max_], read by the GPU
  size_t place_ = 0;                                  // of the current step
  size_t num_entries_ = 0;                            // taken there
};

}  // namespace baton
