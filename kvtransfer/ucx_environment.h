// UCX takes settings from its environment, and images for other servers come with some: those that
// break what this server relies on are found at start, not in production.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace baton {

struct UcxVariables {
  Status status;                       // not ok: the transport must not be used; names the variable
  std::vector<std::string> no_effect;  // names of those that we set ourselves
};

// `environment`: "NAME=value" each, null at its end. A pure function.
UcxVariables check_ucx_environment(const char* const* environment);

}  // namespace baton
