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

  // Ends the capture that was begun on `stream` and makes what it recorded ready to launch.
  void end_capture(cudaStream_t stream) {
    cudaGraph_t recorded = nullptr;
    cuda_check(cudaStreamEndCapture(stream, &recorded), "graph capture");
    const cudaError_t made = cudaGraphInstantiate(&graph_, recorded, 0);
    cudaGraphDestroy(recorded);
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
