#include "model/engine_cuda.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/range.h"

namespace baton {
namespace {

// Rows of logits that come to the host at once: pinned memory of 16 MiB at a vocabulary of 128k.
// Not a limit of requests: a step with more of them is read in several runs.
constexpr int32_t kHostRows = 32;

// So many layers share an event: fewer waits to enqueue, and the copies of the last eight still end
// before the step does.
constexpr int32_t kEventLayers = 8;

double us_between(const CudaEvent& begin, const CudaEvent& end) {
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "time of a step");
  return double{ms} * 1e3;
}

}  // namespace

void CudaEngine::LayerEvents::layer_written(const StepInput&, int32_t layer) {
  const bool last = (layer + 1) % kEventLayers == 0 || layer + 1 == num_layers_;
  if (step != nullptr && last)
    step->written[static_cast<size_t>(layer / kEventLayers)].record(stream_);
}

CudaEngine::CudaEngine(CudaEngineParts parts, const std::function<void(double)>& progress)
    : parts_(std::move(parts)),
      stream_(parts_.backend->stream()),
      layer_events_(stream_, parts_.config.num_layers),
      forward_(parts_, &layer_events_),
      choices_(parts_.context_len, parts_.config.vocab_size),
      batch_(parts_.layout, parts_.config.vocab_size, parts_.context_len),
      reader_(parts_.config.vocab_size),
      count_tables_(forward_.rows_max(), parts_.config.vocab_size),
      results_(int64_t{kStepsInFlight} * forward_.rows_max() *
               static_cast<int64_t>(sizeof(SampleResult))),
      tops_(results_.bytes() * kTopTokensMax),
      host_logits_(int64_t{kHostRows} * parts_.config.vocab_size *
                   static_cast<int64_t>(sizeof(float))),
      watcher_(parts_.backend->device().index, parts_.config.num_layers, parts_.linger_us,
               parts_.sink) {
  for (Step& step : steps_) {
    step.watched.input = &step.input;
    step.written = std::vector<CudaEvent>(
        static_cast<size_t>((parts_.config.num_layers + kEventLayers - 1) / kEventLayers));
  }
  forward_.capture(progress);
}

// The GPU may still be at steps that nobody will collect.
CudaEngine::~CudaEngine() {
  cudaStreamSynchronize(stream_);
}

void CudaEngine::on_step_done(std::function<void()> notify) {
  watcher_.on_step_done(std::move(notify));
}

void CudaEngine::on_step_ending(std::function<void()> notify) {
  watcher_.on_step_ending(std::move(notify));
}

void CudaEngine::submit(StepInput input) {
  CHECK_LT(submitted_ - collected_, uint64_t{kStepsInFlight}) << "steps in flight";
  Step& step = steps_[submitted_ % kStepsInFlight];
  step.number = submitted_ + 1;
  step.input = std::move(input);
  step.output = {.step = step.input.step};
  step.finished = false;
  step.rows.clear();
  step.samples.clear();
  try {
    // The engine thread is not the one that opened the GPU, and GPU 0 is every thread's first.
    cuda_check(cudaSetDevice(parts_.backend->device().index), "device of the engine");
    if (broken_.empty()) begin(step);
  } catch (const CudaError& error) {
    broken_ = error.what();
  }
  ++submitted_;
  if (broken_.empty()) return;
  step.output.error = broken_;
  step.finished = true;
  watcher_.notify();
}

void CudaEngine::begin(Step& step) {
  const ProfilerRange range("begin step");
  const StepInput& input = step.input;
  choices_.update(input);
  count_tables_.begin_step(index_of(step), input.closed_slots);
  for (const SlotOpen& open : input.opened_slots) tokens_in_flight_.erase(open.slot);
  batch_.build(input, choices_, tokens_in_flight_);
  step.rows = batch_.logit_rows();
  step.samples = batch_.samples();
  copy_pages(input);

  step.computes = batch_.num_tokens() > 0;
  step.pushes = parts_.sink != nullptr && !input.pushes.empty() && step.computes;
  layer_events_.step = step.pushes ? &step : nullptr;
  // A chunk that samples nothing ends no prompt: no COMMIT waits for it.
  step.watched.urgent = step.pushes && !step.rows.empty() && parts_.linger_us > 0;
  forward_.record_before_logits(step.watched.urgent ? &step.watched.before_logits : nullptr);
  step.watched.told_layers = false;
  if (batch_.num_tokens() == 0) {
    tokens_in_flight_.clear();
  } else if (samples_on_gpu(step)) {
    begin_sampling(step);
  } else {
    finish_newest();  // whose tokens come before ours
    read_logits(step);
  }
  layer_events_.step = nullptr;
  if (step.pushes) tell_layers(step);
  step.watched.end.record(stream_);
  watcher_.watch(&step.watched);
}

void CudaEngine::tell_layers(Step& step) {
  std::vector<void*> written;
  for (int32_t layer = 0; layer < parts_.config.num_layers; ++layer)
    written.push_back(step.written[static_cast<size_t>(layer / kEventLayers)].get());
  step.watched.told_layers = parts_.sink->layers_enqueued(step.input, written);
}

void CudaEngine::copy_pages(const StepInput& input) {
  for (const PageCopy& copy : input.page_copies) {
    const PagePool& pool = *parts_.pools[static_cast<size_t>(copy.group)];
    cuda_check(
        cudaMemcpyAsync(pool.page(copy.dst_page), pool.page(copy.src_page),
                        static_cast<size_t>(pool.page_bytes()), cudaMemcpyDeviceToDevice, stream_),
        "page copy");
  }
}

// False: the step wants more of its logits than the GPU makes of them; it is read out at once.
bool CudaEngine::samples_on_gpu(const Step& step) {
  const auto rows_max = static_cast<size_t>(forward_.rows_max());
  if (batch_.reads_logits() || step.rows.size() > rows_max || step.samples.size() > rows_max ||
      std::any_of(step.samples.begin(), step.samples.end(), [](const SampleRow& sample) {
        return sample.choice->spec().logprobs > kTopTokensMax;
      })) {
    return false;
  }
  edits_.gather(step.rows, step.samples);
  return forward_.holds(edits_);
}

void CudaEngine::begin_sampling(Step& step) {
  params_.clear();
  TokensInFlight in_flight;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const LogitRow& row = step.rows[i];
    for (int32_t s = row.first_sample; s < row.first_sample + row.num_samples; ++s) {
      const SampleRow& sample = step.samples[static_cast<size_t>(s)];
      params_.push_back(
          Sampler::params(*sample.choice, static_cast<int32_t>(i), row.next_position()));
      in_flight.emplace(sample.slot, s);
    }
  }
  for (StepEdits::Row& row : edits_.rows()) {
    if (row.choice->has_penalties()) count_tables_.use(&row, stream_);
  }
  const int32_t index = index_of(step);
  if (params_.empty()) {
    forward_.hidden_states(batch_, index, step.input, step.begun);
    computed(step.number).record(stream_);
  } else {
    forward_.sample(batch_, params_, edits_, index, !step.pushes, step.input, step.begun);
    computed(step.number).record(stream_);
    copy_results(step);
  }
  tokens_in_flight_ = std::move(in_flight);
}

void CudaEngine::copy_results(const Step& step) {
  const int64_t first = int64_t{index_of(step)} * forward_.rows_max();
  const size_t bytes = step.samples.size() * sizeof(SampleResult);
  cuda_check(cudaMemcpyAsync(results_.as<SampleResult>() + first, forward_.results(), bytes,
                             cudaMemcpyDeviceToHost, stream_),
             "copy of sampled tokens");
  if (std::none_of(params_.begin(), params_.end(),
                   [](const SampleParams& params) { return params.num_top > 0; })) {
    return;
  }
  cuda_check(cudaMemcpyAsync(tops_.as<SampleResult>() + first * kTopTokensMax, forward_.tops(),
                             bytes * kTopTokensMax, cudaMemcpyDeviceToHost, stream_),
             "copy of the likeliest tokens");
}

// Prompt log-probabilities and whole rows: waits for the GPU, run after run.
void CudaEngine::read_logits(Step& step) {
  forward_.hidden_states(batch_, index_of(step), step.input, step.begun);
  computed(step.number).record(stream_);
  const auto vocab_size = static_cast<size_t>(parts_.config.vocab_size);
  const auto num_rows = static_cast<int32_t>(step.rows.size());
  const int32_t run = std::min(kHostRows, forward_.rows_max());
  for (int32_t begin = 0; begin < num_rows; begin += run) {
    const int32_t count = std::min(run, num_rows - begin);
    const float* logits = forward_.logits(begin, count);
    auto* host = host_logits_.as<float>();
    cuda_check(
        cudaMemcpyAsync(host, logits, static_cast<size_t>(count) * vocab_size * sizeof(float),
                        cudaMemcpyDeviceToHost, stream_),
        "copy of logits");
    step.watched.end.record(stream_);
    step.watched.end.synchronize();
    for (int32_t i = 0; i < count && step.output.error.empty(); ++i) {
      reader_.read(step.rows[static_cast<size_t>(begin + i)], step.samples,
                   host + static_cast<size_t>(i) * vocab_size, &step.output);
    }
  }
  step.rows.clear();  // all has been read
}

StepOutput CudaEngine::collect() {
  CHECK_LT(collected_, submitted_) << "no step in flight";
  Step& step = steps_[collected_ % kStepsInFlight];
  finish(step);
  ++collected_;
  return std::move(step.output);
}

void CudaEngine::finish_newest() {
  if (submitted_ > collected_) finish(steps_[(submitted_ - 1) % kStepsInFlight]);
  tokens_in_flight_.clear();
}

void CudaEngine::finish(Step& step) {
  if (step.finished) return;
  // In the order of the steps: a choice takes its tokens one by one.
  Step& oldest = steps_[collected_ % kStepsInFlight];
  if (&oldest != &step) finish(oldest);
  watcher_.wait(step.watched);
  const ProfilerRange range("finish step");
  step.finished = true;
  if (!step.watched.error.empty()) {
    broken_ = step.watched.error;
    step.output.error = broken_;
    return;
  }
  if (step.computes) tell_time(step);
  const int64_t first = int64_t{index_of(step)} * forward_.rows_max();
  for (const LogitRow& row : step.rows) {
    for (int32_t s = row.first_sample; s < row.first_sample + row.num_samples; ++s) {
      if (!step.output.error.empty()) return;
      reader_.accept(row, step.samples[static_cast<size_t>(s)],
                     results_.as<SampleResult>()[first + s],
                     tops_.as<SampleResult>() + (first + s) * kTopTokensMax, &step.output);
    }
  }
  step.samples.clear();
}

// The GPU's events have no clock that the host could read. Where the watcher has seen the step end,
// that is the measure. Else it began when it was enqueued, or it waited for the one before; then
// what the GPU did in between counts as well.
void CudaEngine::tell_time(Step& step) {
  const double took_us = us_between(step.begun.event, computed(step.number));
  const auto begun_us = static_cast<double>(step.begun.at_us);
  const bool follows = computed_number_ + 1 == step.number && begun_us < computed_at_us_;
  double at_us = std::max(begun_us, computed_at_us_) + took_us;
  if (step.watched.end_seen_us > 0) {
    at_us = static_cast<double>(step.watched.end_seen_us) -
            us_between(computed(step.number), step.watched.end);
  } else if (follows) {
    at_us = computed_at_us_ + us_between(computed(computed_number_), computed(step.number));
  }
  computed_at_us_ = std::min(static_cast<double>(clock_.now_us()), at_us);
  computed_number_ = step.number;
  step.output.compute_us = std::lround(took_us);
  step.output.computed_at_us = std::lround(computed_at_us_);
}

}  // namespace baton
