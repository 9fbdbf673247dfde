// Shared-memory barriers and bulk copies: a producer warp fills the stages of a ring, consumer
// warps empty them (mbarrier and cp.async.bulk of PTX ISA 8.0). Device code only.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace baton {

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives and announces `bytes` of copies that complete on the barrier.
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra passed;\n"
      "bra again;\n"
      "passed:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Source, destination and size are multiples of 16 bytes.
__device__ __forceinline__ void bulk_copy(uint32_t destination, const void* source, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier)
      : "memory");
}

// A box of a tensor of four dimensions; elements outside the tensor arrive as zeros. `policy`: see
// stream_policy.
__device__ __forceinline__ void tensor_copy(uint32_t destination, const CUtensorMap& map,
                                            uint32_t barrier, int32_t c0, int32_t c1, int32_t c2,
                                            int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

__device__ __forceinline__ void tensor_copy(uint32_t destination, const CUtensorMap& map,
                                            uint32_t barrier, int32_t c0, int32_t c1, int32_t c2,
                                            int32_t c3, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
      : "memory");
}

// A box of a matrix; elements outside it arrive as zeros. `policy`: see stream_policy.
__device__ __forceinline__ void tensor_copy(uint32_t destination, const CUtensorMap& map,
                                            uint32_t barrier, int32_t c0, int32_t c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}
__device__ __forceinline__ void tensor_copy(uint32_t destination, const CUtensorMap& map,
                                            uint32_t barrier, int32_t c0, int32_t c1,
                                            uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "l"(policy)
      : "memory");
}

// For data that is read once: the first to leave L2.
__device__ __forceinline__ uint64_t stream_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Orders this thread's ordinary accesses of shared memory before later ones by the copy engine and
// the tensor cores.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Makes what this thread wrote or saw written visible to whoever adds later, and shows what those
// before wrote. Returns the value before.
__device__ __forceinline__ int32_t add_acquire_release(int32_t* counter, int32_t value) {
  int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter)), "r"(value)
               : "memory");
  return before;
}

// A place in a ring of kStages and the parity of its barriers.
template <int kStages>
struct RingPosition {
  int32_t stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace baton
