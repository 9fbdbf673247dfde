// Moves weights out of files while a model loads. Threads take one piece after the other, read it
// into a buffer of their own lane and send it on; so as many reads are under way as there are
// lanes, and memory is bounded by their buffers. What a lane is, the caller says: on a GPU a pair
// of pinned buffers and a stream (weight_upload.h). All functions belong to the loading thread;
// each lane is used by one thread of the pipeline.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/weight_source.h"

namespace baton {

// Whole blocks that follow each other in a tensor, as they lie in the file.
struct WeightPiece {
  Dtype dtype = Dtype::kF32;
  int64_t elems = 0;
  int64_t bytes = 0;
  Bf16* to = nullptr;  // where the first element goes
};

class WeightLane {
 public:
  virtual ~WeightLane() = default;
  virtual void begin() {}                // first call on the lane's thread
  virtual std::byte* free_buffer() = 0;  // room for a piece; waits until there is some
  // The piece lies in what free_buffer() gave last.
  virtual void send(const WeightPiece& piece) = 0;
  virtual void finish() {}  // last call: returns when all pieces have arrived
};

class WeightPipeline {
 public:
  // A thread for each lane; pieces have at most `piece_bytes`.
  WeightPipeline(std::vector<std::unique_ptr<WeightLane>> lanes, int64_t piece_bytes);
  // Gives up what no thread has begun to read, and waits for the rest.
  ~WeightPipeline();
  WeightPipeline(const WeightPipeline&) = delete;
  WeightPipeline& operator=(const WeightPipeline&) = delete;

  // Queues a tensor: from view.source, or from view.data, which then must live until finish().
  // `to` has room for all its elements; `owner` keeps that room.
  void add(const TensorView& view, Bf16* to, std::shared_ptr<const void> owner);

  // Returns when everything added has arrived; nothing can be added any more. `progress` (may be
  // empty) hears the fraction that has been sent, some times a second. Throws the first error of a
  // thread.
  void finish(const std::function<void(double)>& progress);

 private:
  struct Job {
    TensorView view;
    std::string name;
    std::shared_ptr<const WeightSource> source;
    Bf16* to = nullptr;
    std::shared_ptr<const void> owner;
    int64_t elems() const { return view.rows * view.cols; }
  };
  struct Claim {
    const Job* job = nullptr;
    int64_t first_elem = 0;
    WeightPiece piece;
  };
  void run_lane(WeightLane& lane);
  void move_pieces(WeightLane& lane);
  std::optional<Claim> claim();  // waits for work; empty at the end
  static void read(const Claim& claim, std::byte* to);

  const int64_t piece_bytes_;
  const std::vector<std::unique_ptr<WeightLane>> lanes_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::condition_variable lane_ended_;
  std::deque<Job> jobs_;  // only grows: claims point into it
  size_t next_job_ = 0;
  int64_t next_elem_ = 0;  // of the next job
  int64_t bytes_added_ = 0;
  int64_t bytes_sent_ = 0;
  size_t lanes_running_ = 0;
  bool closed_ = false;    // nothing more is added
  bool stopping_ = false;  // nothing more is begun
  std::exception_ptr error_;

  std::vector<std::thread> threads_;
};

}  // namespace baton
