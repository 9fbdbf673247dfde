#include "worker/nvlink_clique.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/log.h"

namespace baton {
namespace {

// The part of NVML's and CUDA's binary interfaces that is used here.
using NvmlDevice = struct NvmlDeviceOpaque*;
constexpr int kSuccess = 0;                     // NVML_SUCCESS, CUDA_SUCCESS
constexpr unsigned char kFabricInProgress = 2;  // NVML_GPU_FABRIC_STATE_*
constexpr unsigned char kFabricCompleted = 3;
constexpr int kBusIdBytes = 32;

struct FabricInfo {  // nvmlGpuFabricInfo_v2_t
  unsigned int version = sizeof(FabricInfo) | 2U << 24;
  std::array<uint8_t, 16> cluster_uuid{};
  int status = 0;
  unsigned int clique_id = 0;
  unsigned char state = 0;
  unsigned int health_mask = 0;
};
static_assert(sizeof(FabricInfo) == 36);

// A library that may be absent; stays loaded while this lives.
class Library {
 public:
  explicit Library(const char* file) : handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {}
  bool loaded() const { return handle_ != nullptr; }
  // Null when it has no such function.
  template <typename Function>
  Function* find(const char* name) const {
    return loaded() ? reinterpret_cast<Function*>(::dlsym(handle_.get(), name)) : nullptr;
  }

 private:
  struct Close {
    void operator()(void* handle) const { ::dlclose(handle); }
  };
  std::unique_ptr<void, Close> handle_;
};

// Empty when CUDA does not know the device. NVML numbers GPUs otherwise (CUDA_VISIBLE_DEVICES).
std::string bus_id(int32_t cuda_device) {
  const Library cuda("libcuda.so.1");
  auto* const init = cuda.find<int(unsigned int)>("cuInit");
  auto* const get = cuda.find<int(int*, int)>("cuDeviceGet");
  auto* const bus_id_of = cuda.find<int(char*, int, int)>("cuDeviceGetPCIBusId");
  int device = 0;
  std::array<char, kBusIdBytes> id{};
  const bool found = init != nullptr && get != nullptr && bus_id_of != nullptr &&
                     init(0) == kSuccess && get(&device, cuda_device) == kSuccess &&
                     bus_id_of(id.data(), kBusIdBytes, device) == kSuccess;
  return found ? id.data() : "";
}

// The state at the end of the wait.
FabricInfo ask(const Library& nvml, const std::string& bus_id, int64_t wait_ms) {
  FabricInfo info;
  auto* const device_of =
      nvml.find<int(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByPciBusId_v2");
  auto* const fabric_of = nvml.find<int(NvmlDevice, FabricInfo*)>("nvmlDeviceGetGpuFabricInfoV");
  NvmlDevice device = nullptr;
  if (device_of == nullptr || fabric_of == nullptr ||
      device_of(bus_id.c_str(), &device) != kSuccess)
    return info;
  const SystemClock clock;
  const int64_t deadline_us = clock.now_us() + wait_ms * 1000;
  while (fabric_of(device, &info) == kSuccess && info.state == kFabricInProgress &&
         clock.now_us() < deadline_us) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return info;
}

}  // namespace

std::string clique_name(const std::array<uint8_t, 16>& cluster_uuid, uint32_t clique_id) {
  if (std::all_of(cluster_uuid.begin(), cluster_uuid.end(), [](uint8_t b) { return b == 0; }))
    return "";
  std::string name;
  for (size_t i = 0; i < cluster_uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", cluster_uuid[i]);
    name += hex.data();
  }
  return name + "." + std::to_string(clique_id);
}

std::string nvlink_clique(int32_t cuda_device, int64_t wait_ms) {
  const Library nvml("libnvidia-ml.so.1");
  auto* const init = nvml.find<int()>("nvmlInit_v2");
  auto* const shutdown = nvml.find<int()>("nvmlShutdown");
  if (init == nullptr || shutdown == nullptr || init() != kSuccess) return "";
  const FabricInfo info = ask(nvml, bus_id(cuda_device), wait_ms);
  shutdown();
  const bool complete = info.state == kFabricCompleted && info.status == kSuccess;
  log_info("nvlink_fabric", {{"device", cuda_device},
                             {"state", static_cast<int32_t>(info.state)},
                             {"status", info.status},
                             {"clique", clique_name(info.cluster_uuid, info.clique_id)}});
  return complete ? clique_name(info.cluster_uuid, info.clique_id) : "";
}

}  // namespace baton
