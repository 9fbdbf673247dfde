#include "kvtransfer/ucx_environment.h"

#include <array>
#include <cstdlib>
#include <string_view>

namespace baton {
namespace {

constexpr double kKeepaliveMaxS = 60;

// UcxWorker's and UcxLibrary's own settings go before these.
constexpr std::array<std::string_view, 8> kOverridden = {
    "UCX_TLS",         "UCX_MM_ERROR_HANDLING", "UCX_MM_SEG_SIZE",        "UCX_MM_FIFO_SIZE",
    "UCX_RNDV_THRESH", "UCX_RNDV_SCHEME",       "UCX_MEM_MMAP_HOOK_MODE", "UCX_HANDLE_ERRORS"};

// UCX's times: a number and us, ms, s or m; "inf" and what is none: for ever.
double seconds_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string_view unit(end);
  if (end == text.c_str()) return 1e18;
  if (unit == "us") return value * 1e-6;
  if (unit == "ms") return value * 1e-3;
  if (unit == "m") return value * 60;
  return value;
}

bool is_true(std::string_view value) {
  return value == "y" || value == "yes" || value == "on" || value == "1";
}

bool is_false(std::string_view value) {
  return value == "n" || value == "no" || value == "off" || value == "0";
}

Status check(const std::string& name, const std::string& value) {
  const std::string got = name + "=" + value;
  if (name == "UCX_KEEPALIVE_INTERVAL" && seconds_of(value) > kKeepaliveMaxS) {
    return unavailable(got +
                       ": a dead peer would be noticed after so long; want at most 60s, or unset");
  }
  if (name == "UCX_UNIFIED_MODE" && is_true(value)) {
    return unavailable(
        got + ": it takes all machines for alike and then misreads addresses; want it unset");
  }
  if (name == "UCX_CUDA_IPC_CACHE" && is_false(value)) {
    return unavailable(got +
                       ": every put would map the peer's memory anew (0.5 GB/s); want it unset");
  }
  return {};
}

}  // namespace

UcxVariables check_ucx_environment(const char* const* environment) {
  UcxVariables found;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    const size_t equals = entry.find('=');
    if (!entry.starts_with("UCX_") || equals == std::string_view::npos) continue;
    const std::string name(entry.substr(0, equals));
    if (found.status.ok()) found.status = check(name, std::string(entry.substr(equals + 1)));
    for (const std::string_view overridden : kOverridden) {
      if (name == overridden) found.no_effect.push_back(name);
    }
  }
  return found;
}

}  // namespace baton
