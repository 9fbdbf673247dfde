// A captured CUDA graph, owned by type.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/error.h"

namespace baton {

class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(CudaGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~CudaGraph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  // Ends the capture that was begun on `stream` and makes what it recorded ready to launch;
  // `discard` only ends it.
  void end_capture(cudaStream_t stream, bool discard = false) {
    cudaGraph_t recorded = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &recorded);
    if (!discard) cuda_check(ended, "graph capture");
    cudaError_t made = cudaSuccess;
    if (!discard) made = cudaGraphInstantiate(&graph_, recorded, 0);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    cuda_check(made, "graph instantiation");
  }

  bool valid() const { return graph_ != nullptr; }
  void launch(cudaStream_t stream) const {
    cuda_check(cudaGraphLaunch(graph_, stream), "graph launch");
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace baton
