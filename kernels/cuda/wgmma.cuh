// Hopper's asynchronous tensor core instructions (wgmma, PTX ISA 8.0). Tiles lie in shared memory
// as rows of 128 bytes with the 128-byte swizzle, at multiples of 1024. Device code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/activation_types.h"

namespace baton {

// Descriptor of a tile whose rows of 64 elements run along the summed dimension: groups of 8 rows
// are 1024 bytes apart.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
  return (static_cast<uint64_t>(address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Descriptor of a tile whose rows of 64 elements run across the summed dimension; the next 64
// columns are `stride` bytes away.
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

// The instruction has one form a width, and its text numbers all operands: first the accumulators
// of a thread, half as many as there are columns, then what it multiplies, `p` (add or overwrite),
// two signs, and what is transposed. Lists of the accumulators, as text and as operands:
#define BATON_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define BATON_NAMES_16 BATON_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define BATON_NAMES_32                                                            \
  BATON_NAMES_16                                                                  \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
  "%31"
#define BATON_NAMES_40 BATON_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define BATON_NAMES_48 BATON_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define BATON_NAMES_64                                                            \
  BATON_NAMES_48                                                                  \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
  "%63"
#define BATON_NAMES_72 BATON_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define BATON_NAMES_104                                                              \
  BATON_NAMES_72                                                                     \
  ", %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87" \
  ", %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103"
#define BATON_NAMES_112 BATON_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define BATON_NAMES_128                                                                    \
  BATON_NAMES_112                                                                          \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"
#define BATON_EIGHT(i)                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define BATON_SUMS_8 BATON_EIGHT(0)
#define BATON_SUMS_16 BATON_SUMS_8, BATON_EIGHT(8)
#define BATON_SUMS_32 BATON_SUMS_16, BATON_EIGHT(16), BATON_EIGHT(24)
#define BATON_SUMS_40 BATON_SUMS_32, BATON_EIGHT(32)
#define BATON_SUMS_48 BATON_SUMS_40, BATON_EIGHT(40)
#define BATON_SUMS_64 BATON_SUMS_48, BATON_EIGHT(48), BATON_EIGHT(56)
#define BATON_SUMS_72 BATON_SUMS_64, BATON_EIGHT(64)
#define BATON_SUMS_104 \
  BATON_SUMS_72, BATON_EIGHT(72), BATON_EIGHT(80), BATON_EIGHT(88), BATON_EIGHT(96)
#define BATON_SUMS_112 BATON_SUMS_104, BATON_EIGHT(104)
#define BATON_SUMS_128 BATON_SUMS_112, BATON_EIGHT(112), BATON_EIGHT(120)

#define BATON_TEXT(type, columns, sums, operands, add)                                         \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %" #add ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns \
  "k16.f32." type "." type " {" BATON_NAMES_##sums "}, " operands "\n}\n"

// d[64 x columns] (+)= a[64 x 16] * b[columns x 16]^T, both in shared memory. Of row 16 (warp % 4)
// + lane / 4 + 8 h and column 8 i + lane % 4 * 2 + j, a thread has d[4 i + 2 h + j]. E: Bf16 or
// F16.
#define BATON_WGMMA(columns, sums, at_a, at_b, at_add)                                        \
  template <typename E = Bf16>                                                                \
  __device__ __forceinline__ void wgmma(float(&d)[sums], uint64_t a, uint64_t b, bool add) {  \
    if constexpr (std::is_same_v<E, F16>) {                                                   \
      asm volatile(                                                                           \
          BATON_TEXT("f16", columns, sums, "%" #at_a ", %" #at_b ", p, 1, 1, 0, 0;", at_add)  \
          : BATON_SUMS_##sums                                                                 \
          : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));                                  \
    } else {                                                                                  \
      asm volatile(                                                                           \
          BATON_TEXT("bf16", columns, sums, "%" #at_a ", %" #at_b ", p, 1, 1, 0, 0;", at_add) \
          : BATON_SUMS_##sums                                                                 \
          : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));                                  \
    }                                                                                         \
  }
BATON_WGMMA(16, 8, 8, 9, 10)
BATON_WGMMA(32, 16, 16, 17, 18)
BATON_WGMMA(64, 32, 32, 33, 34)
BATON_WGMMA(128, 64, 64, 65, 66)
BATON_WGMMA(144, 72, 72, 73, 74)
BATON_WGMMA(208, 104, 104, 105, 106)
BATON_WGMMA(224, 112, 112, 113, 114)
BATON_WGMMA(256, 128, 128, 129, 130)

// d[64 x columns] (+)= a[64 x 16] * b[16 x columns], of bf16: a in registers, b transposed in
// shared memory (transposed_tile_descriptor).
#define BATON_WGMMA_REGISTERS(columns, sums, at_a0, at_a1, at_a2, at_a3, at_b, at_add)      \
  __device__ __forceinline__ void wgmma(float(&d)[sums], const uint32_t(&a)[4], uint64_t b, \
                                        bool add) {                                         \
    asm volatile(BATON_TEXT("bf16", columns, sums,                                          \
                            "{%" #at_a0 ", %" #at_a1 ", %" #at_a2 ", %" #at_a3 "}, %" #at_b \
                            ", p, 1, 1, 1;",                                                \
                            at_add)                                                         \
                 : BATON_SUMS_##sums                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                      \
                   "r"(static_cast<int32_t>(add)));                                         \
  }
BATON_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37)
BATON_WGMMA_REGISTERS(80, 40, 40, 41, 42, 43, 44, 45)
BATON_WGMMA_REGISTERS(96, 48, 48, 49, 50, 51, 52, 53)
BATON_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69)
BATON_WGMMA_REGISTERS(256, 128, 128, 129, 130, 131, 132, 133)

#undef BATON_WGMMA_REGISTERS
#undef BATON_WGMMA
#undef BATON_TEXT
#undef BATON_EIGHT
#undef BATON_SUMS_128
#undef BATON_SUMS_112
#undef BATON_SUMS_104
#undef BATON_SUMS_72
#undef BATON_SUMS_64
#undef BATON_SUMS_48
#undef BATON_SUMS_40
#undef BATON_SUMS_32
#undef BATON_SUMS_16
#undef BATON_SUMS_8
#undef BATON_NAMES_128
#undef BATON_NAMES_112
#undef BATON_NAMES_104
#undef BATON_NAMES_72
#undef BATON_NAMES_64
#undef BATON_NAMES_48
#undef BATON_NAMES_40
#undef BATON_NAMES_32
#undef BATON_NAMES_16
#undef BATON_NAMES_8

template <int kRegisters>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace baton
