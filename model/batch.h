// A step's chunks as the forward pass wants them: one run of tokens, and for each kv_group where
// their K and V go and which pages they see. Reused from step to step, so that a step allocates
// nothing once it has seen its largest batch. Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "model/engine.h"

namespace baton {

struct GroupBatch {
  std::vector<int32_t> slot_mapping;         // [num_tokens] page_id * page_tokens + offset
  std::vector<AttentionSequence> sequences;  // one a chunk; block tables point into the StepInput
};

// A batch where the ops read it: the Batch itself on CPU, a copy on the device on CUDA.
struct GroupView {
  const int32_t* slot_mapping = nullptr;
  AttentionBatch attention;
};
struct BatchView {
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  int32_t num_tokens = 0;
  std::vector<GroupView> groups;
};

struct Batch {
  std::vector<TokenId> tokens;     // [num_tokens]
  std::vector<int32_t> positions;  // [num_tokens] absolute
  std::vector<GroupBatch> groups;  // [kv_groups]

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  void clear(size_t num_groups);
  void view(BatchView* view) const;  // valid until the batch changes
  // Adds `count` tokens of one sequence from chunk.first_pos on. `chunk` must outlive the batch's
  // use.
  void add(const Chunk& chunk, const TokenId* ids, int32_t count, const KvLayout& layout);
};

}  // namespace baton
