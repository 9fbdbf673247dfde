// Tells when files have changed: replaced, rewritten, or behind a link that points elsewhere now
// (as mounted Secrets do). One owner thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

class WatchedFiles {
 public:
  explicit WatchedFiles(std::vector<std::string> paths)
      : paths_(std::move(paths)), stamp_(stamp()) {}

  // Since the last call, or since construction. Costs a stat() of each. Read the files afterwards:
  // a change in between shows in the next call.
  bool changed();

 private:
  // Device, inode, size and status time of each; zeros for one that is not there.
  std::vector<int64_t> stamp() const;

  const std::vector<std::string> paths_;
  std::vector<int64_t> stamp_;
};

}  // namespace baton
