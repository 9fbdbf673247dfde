// Raises the process's limit of open files to what its connections need. Called once by main.cc,
// before any thread starts.
#pragma once

#include <cstdint>

namespace baton {

// Each connection is a descriptor, and shells often start processes with a soft limit of 1024. Sets
// it to `connections` and some more, or as near as the hard limit lets; then a line in the log says
// how many there are.
void raise_descriptor_limit(int64_t connections);

}  // namespace baton
