#include "base/build_info.h"

#include <fstream>
#include <thread>

namespace baton {

BuildInfo build_info() {
  return {BATON_VERSION, BATON_COMMIT, BATON_BUILD_TYPE};
}

std::string machine_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  std::string model = "unknown CPU";
  while (std::getline(cpuinfo, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) model = line.substr(colon + 2);
    break;
  }
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " CPUs";
}

}  // namespace baton
