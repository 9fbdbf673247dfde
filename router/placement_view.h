// What /debug/placement says: of each worker whether it gets requests, why not, and how busy it is;
// of each entry of `workers` what it stands for. Called by api.cc, router loop thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/placement.h"
#include "router/worker_list.h"

namespace baton {

// One JSON object, indented for people.
std::string placement_json(const Placement& placement,
                           const std::vector<WorkerList::Entry>& discovery, int64_t now_us);

}  // namespace baton
