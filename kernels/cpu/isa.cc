#include "kernels/cpu/isa.h"

#include <string>
#include <vector>

#include "base/status.h"

namespace baton {
namespace {

// Best first.
std::vector<const CpuIsa*> supported_isas() {
  std::vector<const CpuIsa*> isas;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni")) {
    isas.push_back(&avx512::kIsa);
  }
  // F16C has no name here in g++ 12; every CPU with AVX2 and FMA has it.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(&avx2::kIsa);
#endif
  isas.push_back(&portable::kIsa);
  return isas;
}

}  // namespace

int64_t attention_scratch_floats(int32_t rows, int32_t head_dim) {
  constexpr int64_t kBlockKeys = 64, kScoreRows = 8;
  const int64_t dim = (head_dim + 15) / 16 * 16;
  return 2 * dim * kBlockKeys + kScoreRows * kBlockKeys + rows * (2 * dim + 2);
}

const CpuIsa& find_isa(const char* name) {
  const std::vector<const CpuIsa*> isas = supported_isas();
  const std::string wanted = name;
  std::string names;
  for (const CpuIsa* isa : isas) {
    if (wanted == "auto" || wanted == isa->name) return *isa;
    names += std::string(names.empty() ? "" : ", ") + isa->name;
  }
  throw ConfigError("isa: got \"" + wanted + "\", want auto or one that this CPU has: " + names);
}

}  // namespace baton
