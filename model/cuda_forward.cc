#include "model/cuda_forward.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/range.h"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {
namespace {

int32_t rows_max_for(const CudaEngineParts& parts) {
  return std::max(std::min(graph_buckets(parts.running_max).back(), parts.step_tokens_max), 1);
}

}  // namespace

CudaForward::CudaForward(const CudaEngineParts& parts, LayerSink* recorder)
    : parts_(parts),
      stream_(parts.backend->stream()),
      buckets_(graph_buckets(std::min(parts.running_max, parts.step_tokens_max))),
      rows_max_(rows_max_for(parts)),
      forward_(parts.config, parts.weights, parts.layout, parts.pools, *parts.backend, recorder,
               parts.step_tokens_max, rows_max_, parts.context_len) {
  // Every chunk belongs to a choice that runs, or to a prompt being pushed.
  const int32_t sequences_max =
      std::max(std::min(parts.step_tokens_max, 2 * parts.running_max + 16), buckets_.back());
  std::vector<const AttentionPlanner*> planners;
  std::vector<std::byte*> scratch;
  for (const KvGroup& group : parts.layout.groups) {
    add_planner(group, sequences_max);
    planners.push_back(planners_.back().get());
    scratch.push_back(scratch_.back().data());
  }
  const int32_t tokens_max = std::max(parts.step_tokens_max, buckets_.back());
  staging_ = std::make_unique<StepStaging>(
      parts.layout, std::move(planners), std::move(scratch),
      StepStaging::Limits{.tokens = tokens_max,
                          .sequences = sequences_max,
                          .samples = std::max(rows_max_, buckets_.back()),
                          .context_len = parts.context_len,
                          .vocab_size = parts.config.vocab_size});
  for (PinnedBuffer& host : staged_host_) host = PinnedBuffer(staging_->bytes_max());
  staged_device_ = DeviceBuffer(staging_->bytes_max());
  tokens_ = DeviceBuffer(tokens_max * int64_t{sizeof(int32_t)});
  results_ = DeviceBuffer(rows_max_ * int64_t{sizeof(SampleResult)});
  tops_ = DeviceBuffer(rows_max_ * kTopTokensMax * int64_t{sizeof(SampleResult)});
  edited_ = DeviceBuffer(int64_t{rows_max_} * parts.config.vocab_size * int64_t{sizeof(float)});
  sample_scratch_ = DeviceBuffer(sample_scratch_bytes(rows_max_));
  staged_.batch.tokens = tokens_.as<int32_t>();
  staged_.edited = edited_.as<float>();
}

void CudaForward::add_planner(const KvGroup& group, int32_t sequences_max) {
  planners_.push_back(std::make_unique<AttentionPlanner>(
      AttentionShape{.num_heads = parts_.config.num_heads,
                     .num_kv_heads = group.num_kv_heads,
                     .head_dim = group.head_dim,
                     .window = group.window},
      sequences_max, parts_.step_tokens_max, parts_.backend->device().num_sms));
  DeviceBuffer& scratch = scratch_.emplace_back(planners_.back()->scratch_bytes());
  cuda_check(cudaMemsetAsync(scratch.data(), 0, static_cast<size_t>(scratch.bytes()), stream_),
             "attention scratch");
}

void CudaForward::capture(const std::function<void(double)>& progress) {
  if (parts_.graphs != "on") return;
  StepBatch nothing(parts_.layout, parts_.config.vocab_size, parts_.context_len);
  nothing.build({}, ChoiceTable(parts_.context_len, parts_.config.vocab_size), {});
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] > rows_max_) break;
    stage(nothing, {}, {}, {buckets_[i], buckets_[i], buckets_[i], buckets_[i]}, 0);
    copy_staged(0);
    run_bucket(buckets_[i], {});
    cuda_check(cudaStreamSynchronize(stream_), "decode graph");
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(buckets_.size()));
  }
}

void CudaForward::sample(const StepBatch& batch, std::span<const SampleParams> params,
                         const StepEdits& edits, int32_t slot, bool may_use_graph,
                         const StepInput& step, StepBegun& begun) {
  const int32_t bucket = may_use_graph && batch.decode_only() && parts_.graphs != "off"
                             ? bucket_for(buckets_, batch.num_tokens())
                             : 0;
  if (bucket > 0 && bucket <= rows_max_) {
    stage(batch, params, edits, {bucket, bucket, bucket, bucket}, slot);
    copy_staged(slot);
    begun.record(stream_);
    run_bucket(bucket, step);
    return;
  }
  const StepShape shape{.tokens = batch.num_tokens(),
                        .sequences = static_cast<int32_t>(batch.batch().groups[0].sequences.size()),
                        .logit_rows = static_cast<int32_t>(batch.logit_rows().size()),
                        .samples = static_cast<int32_t>(params.size())};
  CHECK_LE(shape.logit_rows, rows_max_) << "rows of logits";
  CHECK_LE(shape.samples, rows_max_) << "samples";
  stage(batch, params, edits, shape, slot);
  copy_staged(slot);
  begun.record(stream_);
  enqueue(shape, step);
}

void CudaForward::hidden_states(const StepBatch& batch, int32_t slot, const StepInput& step,
                                StepBegun& begun) {
  const StepShape shape{.tokens = batch.num_tokens(),
                        .sequences = static_cast<int32_t>(batch.batch().groups[0].sequences.size()),
                        .logit_rows = static_cast<int32_t>(batch.logit_rows().size())};
  stage(batch, {}, {}, shape, slot);
  copy_staged(slot);
  begun.record(stream_);
  enqueue({.tokens = shape.tokens, .sequences = shape.sequences}, step);
}

const float* CudaForward::logits(int32_t begin, int32_t count) {
  return forward_.logits(staged_.logit_rows + begin, count);
}

void CudaForward::stage(const StepBatch& batch, std::span<const SampleParams> params,
                        const StepEdits& edits, const StepShape& shape, int32_t slot) {
  const ProfilerRange range("stage");
  staging_->stage(batch.batch(), batch.logit_rows(), params, edits, shape,
                  staged_host_[static_cast<size_t>(slot)].data(), staged_device_.data(), &staged_);
}

void CudaForward::copy_staged(int32_t slot) {
  cuda_check(cudaMemcpyAsync(staged_device_.data(), staged_host_[static_cast<size_t>(slot)].data(),
                             static_cast<size_t>(staged_.bytes), cudaMemcpyHostToDevice, stream_),
             "copy of a step");
}

void CudaForward::run_bucket(int32_t bucket, const StepInput& step) {
  const ProfilerRange range("decode graph");
  CudaGraph& graph = graphs_[bucket];
  if (graph.valid()) {
    graph.launch(stream_);
    return;
  }
  // Before it can be captured, everything has to run once: CUDA loads kernels at their first use.
  const StepShape shape{bucket, bucket, bucket, bucket};
  enqueue(shape, step);
  cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "graph capture");
  enqueue(shape, step);
  graph.end_capture(stream_);
}

void CudaForward::enqueue(const StepShape& shape, const StepInput& step) {
  const ProfilerRange range("enqueue forward");
  resolve_tokens_cuda(staged_.source_tokens, results_.as<SampleResult>(), tokens_.as<int32_t>(),
                      shape.tokens, stream_);
  forward_.hidden_states(staged_.batch, step);
  if (before_logits_ != nullptr) before_logits_->record(stream_);
  if (shape.samples == 0) return;
  sample_cuda({.logits = forward_.logits(staged_.logit_rows, shape.logit_rows),
               .vocab_size = parts_.config.vocab_size,
               .params = staged_.params,
               .num_samples = shape.samples,
               .scratch = sample_scratch_.data(),
               .results = results_.as<SampleResult>(),
               .tops = tops_.as<SampleResult>()},
              stream_);
}

}  // namespace baton
