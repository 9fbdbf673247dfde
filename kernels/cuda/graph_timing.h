// For benchmarks: times what is enqueued on a stream, recorded as a graph, replayed, medians;
// candidates take turns, because a GPU's clocks fall under load. And what brings their inputs to
// the GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "kernels/cuda/error.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"

namespace baton {

// What main() returns; an error is said.
inline int run_bench(const std::function<void()>& run) {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

using Enqueue = std::function<void(cudaStream_t)>;

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <typename E>
DeviceBuffer on_gpu(const std::vector<E>& values) {
  DeviceBuffer buffer(static_cast<int64_t>(values.size() * sizeof(E)));
  cuda_check(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(E), cudaMemcpyDefault),
             "copy to the GPU");
  return buffer;
}

// Runs it once, because CUDA loads kernels at their first use, and records it. An invalid graph
// where something cannot be enqueued.
inline CudaGraph record_graph(const CudaStream& stream, const Enqueue& enqueue) {
  CudaGraph graph;
  try {
    enqueue(stream.get());
  } catch (const CudaError&) {
    return graph;
  }
  cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  enqueue(stream.get());
  graph.end_capture(stream.get());
  return graph;
}

// Median microseconds of `rounds` replays of each, after one that warms up; infinite for an invalid
// graph.
inline std::vector<double> time_graphs(const CudaStream& stream,
                                       const std::vector<CudaGraph>& graphs, int32_t rounds) {
  CudaEvent begin(true), end(true);
  std::vector<std::vector<double>> times(graphs.size());
  for (int32_t round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < graphs.size(); ++i) {
      float ms = INFINITY;
      if (graphs[i].valid()) {
        begin.record(stream.get());
        graphs[i].launch(stream.get());
        end.record(stream.get());
        end.synchronize();
        cuda_check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "time");
      }
      if (round > 0) times[i].push_back(ms * 1e3);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& all : times) medians.push_back(median(all));
  return medians;
}

// The same for `repeats` of one thing in a graph: microseconds of one.
inline double time_repeats(const CudaStream& stream, int32_t repeats, int32_t rounds,
                           const Enqueue& enqueue) {
  std::vector<CudaGraph> graphs;
  graphs.push_back(record_graph(stream, [&](cudaStream_t s) {
    for (int32_t i = 0; i < repeats; ++i) enqueue(s);
  }));
  return time_graphs(stream, graphs, rounds)[0] / repeats;
}

}  // namespace baton
