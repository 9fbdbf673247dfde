// A named range of host time for NVIDIA's profilers (NVTX): what the thread is at between
// construction and destruction. Costs nothing where no profiler is attached.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace baton {

class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name) { nvtxRangePushA(name); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { nvtxRangePop(); }
};

}  // namespace baton
