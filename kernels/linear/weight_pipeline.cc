#include "kernels/linear/weight_pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kProgressPeriod{100};

}  // namespace

WeightPipeline::WeightPipeline(std::vector<std::unique_ptr<WeightLane>> lanes, int64_t piece_bytes)
    : piece_bytes_(piece_bytes), lanes_(std::move(lanes)), lanes_running_(lanes_.size()) {
  for (const auto& lane : lanes_) threads_.emplace_back([this, &lane] { run_lane(*lane); });
}

WeightPipeline::~WeightPipeline() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WeightPipeline::add(const TensorView& view, Bf16* to, std::shared_ptr<const void> owner) {
  const int64_t bytes = dtype_bytes(view.dtype, view.rows * view.cols);
  CHECK_GE(piece_bytes_, dtype_info(view.dtype).block_bytes) << "a piece holds a block";
  if (bytes == 0) return;
  Job job{.view = view, .name = view.name, .to = to, .owner = std::move(owner)};
  if (view.source != nullptr) job.source = view.source->shared_from_this();
  {
    const std::lock_guard lock(mutex_);
    CHECK(!closed_) << "weights added after finish()";
    jobs_.push_back(std::move(job));
    bytes_added_ += bytes;
  }
  work_.notify_all();
}

void WeightPipeline::finish(const std::function<void(double)>& progress) {
  std::unique_lock lock(mutex_);
  closed_ = true;
  work_.notify_all();
  while (lanes_running_ > 0) {
    lane_ended_.wait_for(lock, kProgressPeriod, [&] { return lanes_running_ == 0; });
    if (!progress || error_ || bytes_added_ == 0) continue;
    const double fraction = static_cast<double>(bytes_sent_) / static_cast<double>(bytes_added_);
    lock.unlock();
    progress(fraction);
    lock.lock();
  }
  if (error_) std::rethrow_exception(error_);
}

void WeightPipeline::run_lane(WeightLane& lane) {
  std::exception_ptr error;
  try {
    move_pieces(lane);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (error) {
    stopping_ = true;
    if (!error_) error_ = error;
    work_.notify_all();
  }
  --lanes_running_;
  lane_ended_.notify_all();
}

void WeightPipeline::move_pieces(WeightLane& lane) {
  lane.begin();
  while (const std::optional<Claim> next = claim()) {
    read(*next, lane.free_buffer());
    lane.send(next->piece);
    const std::lock_guard lock(mutex_);
    bytes_sent_ += next->piece.bytes;
  }
  lane.finish();
}

std::optional<WeightPipeline::Claim> WeightPipeline::claim() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return stopping_ || closed_ || next_job_ < jobs_.size(); });
  if (stopping_ || next_job_ == jobs_.size()) return std::nullopt;
  const Job& job = jobs_[next_job_];
  const DtypeInfo& info = dtype_info(job.view.dtype);
  const int64_t elems_max = piece_bytes_ / info.block_bytes * info.block_elems;
  const int64_t elems = std::min(elems_max, job.elems() - next_elem_);
  const Claim claim{.job = &job,
                    .first_elem = next_elem_,
                    .piece = {.dtype = job.view.dtype,
                              .elems = elems,
                              .bytes = dtype_bytes(job.view.dtype, elems),
                              .to = job.to + next_elem_}};
  next_elem_ += elems;
  if (next_elem_ == job.elems()) {
    ++next_job_;
    next_elem_ = 0;
  }
  return claim;
}

void WeightPipeline::read(const Claim& claim, std::byte* to) {
  const Job& job = *claim.job;
  const int64_t begin = dtype_bytes(job.view.dtype, claim.first_elem);
  const auto bytes = static_cast<size_t>(claim.piece.bytes);
  if (job.source == nullptr) {
    std::memcpy(to, static_cast<const std::byte*>(job.view.data) + begin, bytes);
    return;
  }
  job.source->read(job.name, job.view.source_offset + begin, {to, bytes});
}

}  // namespace baton
