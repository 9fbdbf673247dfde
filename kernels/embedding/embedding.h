// Rows of the embedding table, expanded to float32.
#pragma once

#include <cstdint>

#include "kernels/linear/linear.h"

namespace baton {

//   table  any Dtype [vocab, hidden], as in the file
//   ids    int32 [num_tokens], each in [0, vocab)
//   y      float32 [num_tokens, hidden]
struct EmbeddingArgs {
  TensorView table;
  const int32_t* ids = nullptr;
  float* y = nullptr;
  int32_t num_tokens = 0;
};

}  // namespace baton
