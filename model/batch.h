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

struct Batch {
  std::vector<TokenId> tokens;     // [num_tokens]
  std::vector<int32_t> positions;  // [num_tokens] absolute
  std::vector<GroupBatch> groups;  // [kv_groups]

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  void clear(size_t num_groups);
  // Adds `count` tokens of one sequence from chunk.first_pos on. `chunk` must outlive the batch's
  // use.
  void add(const Chunk& chunk, const TokenId* ids, int32_t count, const KvLayout& layout);
};

}  // namespace baton
