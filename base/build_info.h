// What this binary is and where it runs; benchmarks and /version print it.
#pragma once

#include <string>

namespace baton {

struct BuildInfo {
  std::string version;
  std::string
      commit;  // short hash at configure time, "+" if the tree had changes, "unknown" outside git
  std::string build_type;  // Release, Debug
};
BuildInfo build_info();

std::string machine_name();  // "AMD EPYC ..., 2 CPUs"

}  // namespace baton
