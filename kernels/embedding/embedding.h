// Rows of the embedding table, expanded to the type of the residual.
#pragma once

#include <cstdint>

#include "kernels/linear/linear.h"

namespace baton {

// A prepared table; made by Backend::prepare_table, used only with the Backend that made it.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

 protected:
  EmbeddingTable(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {}

 private:
  int64_t rows_, cols_;
};

//   table  [vocab, hidden]
//   ids    int32 [num_tokens], each in [0, vocab)
//   y      T [num_tokens, hidden]
template <typename T>
struct EmbeddingArgs {
  const EmbeddingTable* table = nullptr;
  const int32_t* ids = nullptr;
  T* y = nullptr;
  int32_t num_tokens = 0;
};

// y[i] = x[rows[i]]: the rows whose logits somebody wants.
//   x     T [*, cols]
//   rows  int32 [num_rows]
//   y     T [num_rows, cols]
template <typename T>
struct GatherRowsArgs {
  const T* x = nullptr;
  const int32_t* rows = nullptr;
  T* y = nullptr;
  int32_t num_rows = 0;
  int32_t cols = 0;
};

}  // namespace baton
