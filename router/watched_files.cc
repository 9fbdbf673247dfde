#include "router/watched_files.h"

#include <sys/stat.h>

#include <utility>

namespace baton {

bool WatchedFiles::changed() {
  return std::exchange(stamp_, stamp()) != stamp_;
}

std::vector<int64_t> WatchedFiles::stamp() const {
  std::vector<int64_t> numbers;
  for (const std::string& path : paths_) {
    struct stat file = {};
    if (path.empty() || ::stat(path.c_str(), &file) != 0) file = {};
    for (const int64_t number :
         {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino),
          int64_t{file.st_size}, int64_t{file.st_ctim.tv_sec}, int64_t{file.st_ctim.tv_nsec}}) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

}  // namespace baton
