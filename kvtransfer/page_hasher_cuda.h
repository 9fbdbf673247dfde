// PageHasher of a GPU's pages: page_digest.h, a batch at a time on a stream of its own, waited for
// in pump(): some tens of microseconds on a GPU with free multiprocessors, up to a GEMM's time on
// one that computes. Handoff thread only, but for the constructor.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "kvtransfer/page_hasher.h"

namespace baton {

// `pools` in the memory of GPU `device`. Throws CudaError from pump().
std::unique_ptr<PageHasher> make_cuda_page_hasher(int32_t device, std::vector<PagePool*> pools);

}  // namespace baton
