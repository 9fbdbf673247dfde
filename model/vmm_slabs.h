// Slabs of GPU memory for a PagePool, by CUDA's virtual memory management: one reserved address
// range, each slab a physical allocation of its own that another process can import by its file
// descriptor and that can be unmapped alone. The descriptor keeps the memory alive after the pool.
#pragma once

#include <cstdint>
#include <memory>

#include "model/page_pool.h"

namespace baton {

// Memory of GPU `device`, which must be open (open_cuda_device). Throws ConfigError where the
// driver lacks what it takes.
std::unique_ptr<SlabMemory> vmm_slab_memory(int32_t device);

}  // namespace baton
