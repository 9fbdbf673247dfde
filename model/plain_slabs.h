// A PagePool in one plain allocation of a GPU's memory (cudaMalloc), for a library that shares such
// memory and no other (UCX's cuda_ipc). Its slabs have no descriptor: nobody imports them one by
// one, and none can be taken back alone.
#pragma once

#include <cstdint>
#include <memory>

#include "model/page_pool.h"

namespace baton {

// As PagePool's slab_bytes: all pages are one slab.
inline constexpr int64_t kOneSlab = INT64_MAX;

// Memory of GPU `device`, which must be open (open_cuda_device).
std::unique_ptr<SlabMemory> plain_slab_memory(int32_t device);

}  // namespace baton
