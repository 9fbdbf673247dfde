// How the rows of a step are changed before a GPU draws from them: what ChoiceState::adjust does on
// CPU, written down for the kernel (kernels/sampling/sampling.h). Masks, bans and biases go with
// the step; counts of tokens stay on the GPU (count_tables.h). Reused from step to step. Host
// arithmetic only. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "model/step_batch.h"

namespace baton {

// Room for a row's bans and biases, on average over a step's rows: all that the router lets
// through (1024 biases, 1024 stop ids, 256 bad words in two spellings, the model's EOS ids).
inline constexpr int64_t kEditListBytes = 24 << 10;

class StepEdits {
 public:
  // A sample whose row is changed.
  struct Row {
    int32_t sample = 0;     // in the step
    int32_t slot = 0;       // of the choice
    int32_t batch_row = 0;  // the token there comes before the one to be drawn
    int32_t position = 0;   // of the one to be drawn
    const ChoiceState* choice = nullptr;
    int32_t first_ban = 0;
    int32_t num_bans = 0;
    // Whoever keeps the counts sets them, where the choice has penalties.
    int32_t* counts = nullptr;
    bool counts_last = false;
  };
  // Where they are written to; pointers but `host` and `params` are the GPU's.
  struct Place {
    std::byte* host = nullptr;  // will lie at `device`; both 16-byte aligned
    std::byte* device = nullptr;
    SampleParams* params = nullptr;   // of all samples
    const int32_t* tokens = nullptr;  // of the batch
    float* edited = nullptr;          // [rows, vocab_size]
    int32_t vocab_size = 0;
  };

  // `samples` must outlive what is gathered.
  void gather(const std::vector<LogitRow>& rows, const std::vector<SampleRow>& samples);
  void clear();

  std::vector<Row>& rows() { return rows_; }
  int64_t bytes() const;  // that write() writes
  void write(const Place& place) const;

  // Bytes that hold any edits of `rows` rows whose lists fit into kEditListBytes on average.
  static int64_t bytes_for(int32_t rows, int32_t vocab_size);

 private:
  void gather(const LogitRow& row, int32_t sample, const SampleRow& drawn);

  std::vector<Row> rows_;
  std::vector<TokenBan> bans_;
};

}  // namespace baton
