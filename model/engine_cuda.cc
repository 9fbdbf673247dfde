#include "model/engine_cuda.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/range.h"

namespace baton {
namespace {

// Rows of logits that one step brings to the host at once: pinned memory of 16 MiB at a vocabulary
// of 128k. Not a limit of requests: a step with more of them is read in several runs.
constexpr int32_t kHostRows = 32;

// The GPU samples what needs nothing but the row and the spec.
bool sampled_on_host(const ChoiceState& choice) {
  return choice.adjusts() || choice.spec().logprobs > 0;
}

}  // namespace

void CudaEngine::LayerEvents::layer_written(const StepInput&, int32_t layer) {
  if (step != nullptr) step->watched.layers[static_cast<size_t>(layer)].record(stream_);
}

CudaEngine::CudaEngine(CudaEngineParts parts, const std::function<void(double)>& progress)
    : parts_(std::move(parts)),
      stream_(parts_.backend->stream()),
      layer_events_(stream_),
      forward_(parts_, &layer_events_),
      choices_(parts_.context_len),
      batch_(parts_.layout, parts_.config.vocab_size, parts_.context_len),
      reader_(parts_.config.vocab_size),
      results_(int64_t{kStepsInFlight} * forward_.rows_max() *
               static_cast<int64_t>(sizeof(SampleResult))),
      host_logits_(int64_t{kStepsInFlight} * kHostRows * parts_.config.vocab_size *
                   static_cast<int64_t>(sizeof(float))),
      watcher_(parts_.backend->device().index, parts_.config.num_layers, parts_.sink) {
  for (Step& step : steps_) {
    step.watched.input = &step.input;
    for (int32_t layer = 0; parts_.sink != nullptr && layer < parts_.config.num_layers; ++layer)
      step.watched.layers.push_back(CudaEvent::sleeping());
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

void CudaEngine::submit(StepInput input) {
  CHECK_LT(submitted_ - collected_, uint64_t{kStepsInFlight}) << "steps in flight";
  Step& step = steps_[submitted_ % kStepsInFlight];
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
  if (waits_for_host(input)) finish_newest();
  choices_.update(input);
  for (const SlotOpen& open : input.opened_slots) tokens_in_flight_.erase(open.slot);
  batch_.build(input, choices_, tokens_in_flight_);
  step.rows = batch_.logit_rows();
  step.samples = batch_.samples();
  copy_pages(input);

  const bool pushes = parts_.sink != nullptr && !input.pushes.empty() && batch_.num_tokens() > 0;
  layer_events_.step = pushes ? &step : nullptr;
  step.watched.watch_layers = pushes;
  step.watched.told_layers = false;
  step.computes = batch_.num_tokens() > 0;
  if (batch_.num_tokens() == 0) {
    tokens_in_flight_.clear();
    host_slots_.clear();
  } else if (choose_host_rows(step)) {
    begin_sampling(step);
  } else {
    finish_newest();  // whose tokens come before ours
    read_logits(step);
  }
  layer_events_.step = nullptr;
  if (pushes) tell_layers(step);
  step.watched.end.record(stream_);
  watcher_.watch(&step.watched);
}

void CudaEngine::tell_layers(Step& step) {
  std::vector<void*> written;
  for (const CudaEvent& event : step.watched.layers) written.push_back(event.get());
  step.watched.told_layers = parts_.sink->layers_enqueued(step.input, written);
}

// A token that the host samples must be there before a step can continue it.
bool CudaEngine::waits_for_host(const StepInput& input) const {
  return std::any_of(input.chunks.begin(), input.chunks.end(), [&](const Chunk& chunk) {
    return chunk.use_last && host_slots_.contains(chunk.sample_slots[0]);
  });
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

// False: the step wants more from its logits than samples, or more rows on the host than there is
// room for; it is read out at once.
bool CudaEngine::choose_host_rows(Step& step) {
  const auto rows_max = static_cast<size_t>(forward_.rows_max());
  if (batch_.reads_logits() || step.rows.size() > rows_max || step.samples.size() > rows_max)
    return false;
  int32_t count = 0;
  step.host_rows.assign(step.rows.size(), -1);
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const auto begin = step.samples.begin() + step.rows[i].first_sample;
    if (std::any_of(begin, begin + step.rows[i].num_samples,
                    [](const SampleRow& sample) { return sampled_on_host(*sample.choice); })) {
      step.host_rows[i] = count++;
    }
  }
  return count <= kHostRows;
}

void CudaEngine::begin_sampling(Step& step) {
  params_.clear();
  TokensInFlight in_flight;
  std::unordered_set<int32_t> host_slots;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const LogitRow& row = step.rows[i];
    for (int32_t s = row.first_sample; s < row.first_sample + row.num_samples; ++s) {
      const SampleRow& sample = step.samples[static_cast<size_t>(s)];
      params_.push_back(
          Sampler::params(*sample.choice, static_cast<int32_t>(i), row.next_position()));
      in_flight.emplace(sample.slot, s);
      if (step.host_rows[i] >= 0) host_slots.insert(sample.slot);
    }
  }
  const int32_t index = index_of(step);
  if (params_.empty()) {
    forward_.hidden_states(batch_, index, step.input, step.begun);
    step.computed.record(stream_);
  } else {
    forward_.sample(batch_, params_, index, !step.watched.watch_layers, step.input, step.begun);
    step.computed.record(stream_);
    cuda_check(cudaMemcpyAsync(results_.as<SampleResult>() + index * forward_.rows_max(),
                               forward_.results(), params_.size() * sizeof(SampleResult),
                               cudaMemcpyDeviceToHost, stream_),
               "copy of sampled tokens");
  }
  const auto vocab_size = static_cast<size_t>(parts_.config.vocab_size);
  for (size_t i = 0; i < step.rows.size(); ++i) {
    if (step.host_rows[i] < 0) continue;
    cuda_check(cudaMemcpyAsync(host_logits(step, step.host_rows[i]),
                               forward_.sampled_logits() + i * vocab_size,
                               vocab_size * sizeof(float), cudaMemcpyDeviceToHost, stream_),
               "copy of logits");
  }
  tokens_in_flight_ = std::move(in_flight);
  host_slots_ = std::move(host_slots);
}

// Prompt log-probabilities and whole rows: waits for the GPU, run after run.
void CudaEngine::read_logits(Step& step) {
  forward_.hidden_states(batch_, index_of(step), step.input, step.begun);
  step.computed.record(stream_);
  const auto vocab_size = static_cast<size_t>(parts_.config.vocab_size);
  const auto num_rows = static_cast<int32_t>(step.rows.size());
  const int32_t run = std::min(kHostRows, forward_.rows_max());
  for (int32_t begin = 0; begin < num_rows; begin += run) {
    const int32_t count = std::min(run, num_rows - begin);
    const float* logits = forward_.logits(begin, count);
    float* host = host_logits(step, 0);
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
  host_slots_.clear();
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
  if (step.computes) {
    step.output.compute_us = compute_us(step);
    // The GPU's events have no clock that the host could read. It began when the step was enqueued,
    // or after the step before.
    computed_at_us_ = std::min(
        clock_.now_us(), std::max(step.begun.at_us, computed_at_us_) + step.output.compute_us);
    step.output.computed_at_us = computed_at_us_;
  }
  const SampleResult* results = results_.as<SampleResult>() + index_of(step) * forward_.rows_max();
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const LogitRow& row = step.rows[i];
    for (int32_t s = row.first_sample; s < row.first_sample + row.num_samples; ++s) {
      if (!step.output.error.empty()) return;
      const SampleRow& sample = step.samples[static_cast<size_t>(s)];
      if (step.host_rows[i] >= 0) {
        reader_.sample(row, sample, host_logits(step, step.host_rows[i]), &step.output);
      } else {
        RowReader::accept(row, sample, results[s].token, results[s].logprob, &step.output);
      }
    }
  }
  step.samples.clear();
}

int64_t CudaEngine::compute_us(const Step& step) const {
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, step.begun.event.get(), step.computed.get()),
             "time of a step");
  return static_cast<int64_t>(ms * 1e3F);
}

float* CudaEngine::host_logits(const Step& step, int32_t place) {
  return host_logits_.as<float>() +
         static_cast<int64_t>(index_of(step) * kHostRows + place) * parts_.config.vocab_size;
}

}  // namespace baton
