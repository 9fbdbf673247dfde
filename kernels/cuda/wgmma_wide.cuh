// More widths of wgmma.cuh's product of 64 rows: 144 to 256 columns. Device code only.
#pragma once

#include "kernels/cuda/wgmma.cuh"

namespace baton {

// Operands by tens, "%30, %31, ... %39", and accumulators by eights.
#define BATON_TEN(t)                                                                               \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9"
#define BATON_70                                                                          \
  BATON_TEN()                                                                             \
  ", " BATON_TEN(1) ", " BATON_TEN(2) ", " BATON_TEN(3) ", " BATON_TEN(4) ", " BATON_TEN( \
      5) ", " BATON_TEN(6)
#define BATON_100 BATON_70 ", " BATON_TEN(7) ", " BATON_TEN(8) ", " BATON_TEN(9)
#define BATON_D8(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define BATON_D72                                                                                 \
  BATON_D8(0), BATON_D8(8), BATON_D8(16), BATON_D8(24), BATON_D8(32), BATON_D8(40), BATON_D8(48), \
      BATON_D8(56), BATON_D8(64)
#define BATON_D104 BATON_D72, BATON_D8(72), BATON_D8(80), BATON_D8(88), BATON_D8(96)
#define BATON_D112 BATON_D104, BATON_D8(104)
#define BATON_D128 BATON_D112, BATON_D8(112), BATON_D8(120)
// `columns`: twice the accumulators, which are operands 0 to a - 1; a, b and add follow.
#define BATON_WGMMA_TEXT(type, columns, names, a_name, b_name, add_name)                         \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " add_name ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
  "k16.f32." type "." type " {" names "}, " a_name ", " b_name ", p, 1, 1, 0, 0;\n}\n"
#define BATON_WGMMA(columns, names, accumulators, a_name, b_name, add_name)             \
  template <typename E = Bf16>                                                          \
  __device__ __forceinline__ void wgmma(float(&d)[columns / 2], uint64_t a, uint64_t b, \
                                        bool add) {                                     \
    if constexpr (std::is_same_v<E, F16>) {                                             \
      asm volatile(BATON_WGMMA_TEXT("f16", #columns, names, a_name, b_name, add_name)   \
                   : accumulators                                                       \
                   : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));                   \
    } else {                                                                            \
      asm volatile(BATON_WGMMA_TEXT("bf16", #columns, names, a_name, b_name, add_name)  \
                   : accumulators                                                       \
                   : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));                   \
    }                                                                                   \
  }

BATON_WGMMA(144, BATON_70 ", %70, %71", BATON_D72, "%72", "%73", "%74")
BATON_WGMMA(208, BATON_100 ", %100, %101, %102, %103", BATON_D104, "%104", "%105", "%106")
BATON_WGMMA(224, BATON_100 ", " BATON_TEN(10) ", %110, %111", BATON_D112, "%112", "%113", "%114")
BATON_WGMMA(256,
            BATON_100 ", " BATON_TEN(10) ", " BATON_TEN(
                11) ", %120, %121, %122, %123, %124, %125, %126, %127",
            BATON_D128, "%128", "%129", "%130")

#undef BATON_WGMMA
#undef BATON_WGMMA_TEXT
#undef BATON_D128
#undef BATON_D112
#undef BATON_D104
#undef BATON_D72
#undef BATON_D8
#undef BATON_100
#undef BATON_70
#undef BATON_TEN

}  // namespace baton
