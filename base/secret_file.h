// Files that hold secrets: the cluster token, API keys. Called at start-up.
#pragma once

#include <string>

namespace baton {

// Logs a warning when others than the owner may read the file; `setting` is the one that names it.
// True: has warned. A file that is not there is somebody else's error.
bool warn_if_readable_by_others(const std::string& setting, const std::string& path);

}  // namespace baton
