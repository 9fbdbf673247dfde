// What kernels share of Hopper's asynchronous tensor core instructions (wgmma, PTX ISA 8.0). Tiles
// lie in shared memory as rows of 128 bytes with the 128-byte swizzle, at multiples of 1024. Device
// code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/activation_types.h"

namespace baton {

// Descriptor of a tile whose rows of 64 bf16 run along the summed dimension: groups of 8 rows are
// 1024 bytes apart.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
  return (static_cast<uint64_t>(address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Descriptor of a tile whose rows of 64 bf16 run across the summed dimension; the next 64 columns
// are `stride` bytes away.
__device__ __forceinline__ uint64_t transposed_tile_descriptor(uint32_t address, uint32_t stride) {
  return (static_cast<uint64_t>(address & 0x3ffff) >> 4) |
         static_cast<uint64_t>(stride >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of an accumulator across a wait.
template <int kCount>
__device__ __forceinline__ void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d[64 x N] (+)= a[64 x 16] * b[N x 16]^T, both in shared memory. Of row 16 (warp % 4) + lane / 4 +
// 8 h and column 8 i + lane % 4 * 2 + j, a thread has d[4 i + 2 h + j]. E: Bf16 or F16.
template <typename E = Bf16>
__device__ __forceinline__ void wgmma(float (&d)[8], uint64_t a, uint64_t b, bool add) {
#define BATON_WGMMA(type)                                                                   \
  asm volatile(                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type                           \
      " {%0, %1, %2, %3, %4, %5, %6, %7}, "                                                 \
      "%8, %9, p, 1, 1, 0, 0;\n"                                                            \
      "}\n"                                                                                 \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), \
        "+f"(d[7])                                                                          \
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)))
  if constexpr (std::is_same_v<E, F16>) {
    BATON_WGMMA("f16");
  } else {
    BATON_WGMMA("bf16");
  }
#undef BATON_WGMMA
}

template <typename E = Bf16>
__device__ __forceinline__ void wgmma(float (&d)[16], uint64_t a, uint64_t b, bool add) {
#define BATON_WGMMA(type)                                                                       \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                               \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "               \
      "%16, %17, p, 1, 1, 0, 0;\n"                                                              \
      "}\n"                                                                                     \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),     \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), \
        "+f"(d[14]), "+f"(d[15])                                                                \
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)))
  if constexpr (std::is_same_v<E, F16>) {
    BATON_WGMMA("f16");
  } else {
    BATON_WGMMA("bf16");
  }
#undef BATON_WGMMA
}

template <typename E = Bf16>
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, bool add) {
#define BATON_WGMMA(type)                                                                          \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                 \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                  \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "          \
      "%32, %33, p, 1, 1, 0, 0;\n"                                                                 \
      "}\n"                                                                                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),        \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                                         \
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)))
  if constexpr (std::is_same_v<E, F16>) {
    BATON_WGMMA("f16");
  } else {
    BATON_WGMMA("bf16");
  }
#undef BATON_WGMMA
}

template <typename E = Bf16>
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, bool add) {
#define BATON_WGMMA(type)                                                                          \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                 \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "          \
      "%64, %65, p, 1, 1, 0, 0;\n"                                                                 \
      "}\n"                                                                                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),        \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), \
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), \
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), \
        "+f"(d[63])                                                                                \
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)))
  if constexpr (std::is_same_v<E, F16>) {
    BATON_WGMMA("f16");
  } else {
    BATON_WGMMA("bf16");
  }
#undef BATON_WGMMA
}

template <int kRegisters>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace baton
