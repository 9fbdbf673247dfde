#include "model/engine_cpu.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

// Rows of logits at a time: they need no more memory than that, however many a prompt wants.
constexpr int32_t kLogitRowsMax = 64;

}  // namespace

CpuEngine::CpuEngine(EngineParts parts)
    : parts_(std::move(parts)),
      forward_(parts_.config, parts_.weights, parts_.layout, parts_.pools, *parts_.backend,
               parts_.sink, parts_.step_tokens_max, kLogitRowsMax, parts_.context_len),
      choices_(parts_.context_len, parts_.config.vocab_size),
      batch_(parts_.layout, parts_.config.vocab_size, parts_.context_len),
      reader_(parts_.config.vocab_size) {}

void CpuEngine::submit(StepInput input) {
  CHECK(!submitted_) << "step " << input.step << " submitted before its predecessor was collected";
  submitted_ = std::move(input);
}

StepOutput CpuEngine::collect() {
  CHECK(submitted_) << "no step in flight";
  const StepInput& input = *submitted_;
  const auto start = std::chrono::steady_clock::now();
  StepOutput output{.step = input.step};
  choices_.update(input);
  copy_pages(input);
  batch_.build(input, choices_, {});
  if (batch_.num_tokens() > 0) {
    batch_.batch().view(&view_);
    forward_.hidden_states(view_, input);
    read_logits(&output);
  } else if (parts_.sink != nullptr) {
    // Nothing to compute, but there may be pages to push.
    for (int32_t layer = 0; layer < parts_.config.num_layers; ++layer) {
      parts_.sink->layer_written(input, layer);
    }
  }
  output.compute_us = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::steady_clock::now() - start)
                          .count();
  if (batch_.num_tokens() > 0) output.computed_at_us = clock_.now_us();
  submitted_.reset();
  return output;
}

void CpuEngine::copy_pages(const StepInput& input) {
  for (const PageCopy& copy : input.page_copies) {
    const PagePool& pool = *parts_.pools[static_cast<size_t>(copy.group)];
    std::memcpy(pool.page(copy.dst_page), pool.page(copy.src_page),
                static_cast<size_t>(pool.page_bytes()));
  }
}

void CpuEngine::read_logits(StepOutput* output) {
  const std::vector<LogitRow>& wanted = batch_.logit_rows();
  const auto vocab_size = static_cast<size_t>(parts_.config.vocab_size);
  std::vector<int32_t> rows;
  for (size_t begin = 0; begin < wanted.size(); begin += kLogitRowsMax) {
    const size_t end = std::min(wanted.size(), begin + kLogitRowsMax);
    rows.clear();
    for (size_t i = begin; i < end; ++i) rows.push_back(wanted[i].row);
    const float* logits = forward_.logits(rows.data(), static_cast<int32_t>(rows.size()));
    for (size_t i = begin; i < end && output->error.empty(); ++i) {
      reader_.read(wanted[i], batch_.samples(), logits + (i - begin) * vocab_size, output);
    }
  }
}

}  // namespace baton
