// Attention of a batch of equal sequences over pages in random order, ready to be enqueued and
// timed: for benchmarks.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/graph_timing.h"
#include "kernels/cuda/memory.h"

namespace baton {

class TimedAttention {
 public:
  // `count` sequences of `num_tokens` new tokens behind `first_pos` cached ones. `pages` (its first
  // layer) and q, y [count * num_tokens, num_heads, head_dim] are borrowed. Pages repeat where
  // there are too few.
  TimedAttention(const AttentionShape& shape, const PagedLayer& pages, int32_t num_pages,
                 int32_t num_sms, int32_t count, int32_t num_tokens, int32_t first_pos,
                 const Bf16* q, Bf16* y)
      : shape_(shape),
        kv_(pages),
        pages_each_((first_pos + num_tokens + pages.page_tokens - 1) / pages.page_tokens),
        tables_(on_gpu(random_tables(num_pages, int64_t{count} * pages_each_))),
        planner_(shape, count, count * num_tokens, num_sms),
        lists_host_(planner_.lists_bytes()),
        lists_(planner_.lists_bytes()),
        scratch_(planner_.scratch_bytes()),
        q_(q),
        y_(y) {
    std::vector<AttentionSequence> sequences;
    for (int32_t s = 0; s < count; ++s) {
      sequences.push_back(
          {s * num_tokens, num_tokens, first_pos, tables_.as<int32_t>() + s * pages_each_});
    }
    sequences_ = on_gpu(sequences);
    cuda_check(cudaMemset(scratch_.data(), 0, static_cast<size_t>(scratch_.bytes())), "clear");
    planner_.make_plan(sequences, {lists_host_.data(), lists_.data(), scratch_.data()}, &plan_);
    cuda_check(cudaMemcpy(lists_.data(), lists_host_.data(), static_cast<size_t>(lists_.bytes()),
                          cudaMemcpyHostToDevice),
               "lists");
    batch_ = {sequences_.as<AttentionSequence>(), count, &plan_};
  }
  TimedAttention(const TimedAttention&) = delete;
  TimedAttention& operator=(const TimedAttention&) = delete;

  // One layer's, whose slice begins so many bytes into each page.
  void enqueue(int64_t layer_offset, cudaStream_t stream) const {
    PagedLayer kv = kv_;
    kv.layer_offset = layer_offset;
    attention_cuda({.q = q_,
                    .y = y_,
                    .q_stride = int64_t{shape_.num_heads} * shape_.head_dim,
                    .batch = batch_,
                    .kv = kv,
                    .num_heads = shape_.num_heads,
                    .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
                    .window = shape_.window},
                   stream);
  }

  const int32_t* tables() const { return tables_.as<int32_t>(); }  // [count * pages_each]
  int32_t pages_each() const { return pages_each_; }

 private:
  static std::vector<int32_t> random_tables(int32_t num_pages, int64_t entries) {
    std::vector<int32_t> order(static_cast<size_t>(num_pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    std::vector<int32_t> tables(static_cast<size_t>(entries));
    for (size_t i = 0; i < tables.size(); ++i) tables[i] = order[i % order.size()];
    return tables;
  }

  const AttentionShape shape_;
  const PagedLayer kv_;
  const int32_t pages_each_;
  const DeviceBuffer tables_;
  DeviceBuffer sequences_;
  const AttentionPlanner planner_;
  const PinnedBuffer lists_host_;
  const DeviceBuffer lists_, scratch_;
  const Bf16* const q_;
  Bf16* const y_;
  AttentionPlan plan_;
  AttentionBatch batch_;
};

}  // namespace baton
