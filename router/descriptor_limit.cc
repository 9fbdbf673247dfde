#include "router/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/log.h"

namespace baton {
namespace {

constexpr rlim_t kOtherDescriptors =
    128;  // files, timers, listening sockets, connections to refuse

}  // namespace

void raise_descriptor_limit(int64_t connections) {
  const rlim_t want = static_cast<rlim_t>(connections) + kOtherDescriptors;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) return;
  limit.rlim_cur = std::min(want, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == want) return;
  log_warn("few_descriptors", {{"want", want}, {"got", limit.rlim_cur}});
}

}  // namespace baton
