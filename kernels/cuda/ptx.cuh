// The PTX instructions that have no C++ name. Device code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/activation_types.h"

namespace baton {

// Returns when all kernels before this one in the stream have finished and their writes can be
// seen. Free where the kernel was not started early (launch.h).
__device__ __forceinline__ void wait_for_previous_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel may start once all blocks of this one have come here (or ended). It still waits
// for our results.
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Asynchronous copy of 16 bytes from device to shared memory, past L1; both 16-byte aligned. The
// copies of a thread are seen by that thread after wait_for_copies().
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}
// Closes a group of copies (an empty one too).
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the last kPending groups have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// sums [16, 8] += a [16, 16] b [16, 8]; lane (g, t) = (lane / 4, lane % 4) holds pairs of a from
// row g, g + 8 (cols 2 t), g, g + 8 (cols 2 t + 8), of b col g (rows 2 t, 2 t + 8), and sums of row
// g (cols 2 t, 2 t + 1) and g + 8. E: Bf16 or F16.
template <typename E>
__device__ __forceinline__ void mma_16x8x16(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
#define BATON_MMA(type)                                                               \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<E, F16>) {
    BATON_MMA("f16");
  } else {
    BATON_MMA("bf16");
  }
#undef BATON_MMA
}

// A barrier of all threads of a cluster; shared memory written before it is seen after it.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same without an order of memory accesses: its threads do not wait until what they stored has
// arrived.
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
// `shared`, 16-byte aligned, as block `rank` of the cluster has it at the same place.
__device__ __forceinline__ float4 load_shared_of(const float* shared, uint32_t rank) {
  uint32_t there;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(shared_address(shared)), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(there)
               : "memory");
  return v;
}

// A barrier of `threads` threads of the block (whole warps); `id` 1..15, 0 is __syncthreads'.
__device__ __forceinline__ void group_sync(int32_t id, int32_t threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// The same where all lanes of a warp come at once.
__device__ __forceinline__ void group_sync_aligned(int32_t id, int32_t threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace baton
