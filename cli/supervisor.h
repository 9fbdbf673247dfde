// Keeps a set of child processes running: starts them, restarts what exits, stops them all. Used by
// `baton up`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace baton {

struct ChildSpec {
  std::string name;               // "prefill-0"
  std::vector<std::string> argv;  // argv[0] is the program's path
  std::string log_file;           // its stdout and stderr, appended
};

// Single-threaded: poll() is called by the owner several times a second. The children die with this
// process (PR_SET_PDEATHSIG).
class Supervisor {
 public:
  Supervisor(std::vector<ChildSpec> children, const Clock& clock);
  ~Supervisor();  // kills what is left

  // Starts what is due and reaps what has exited. Returns a line for each exit: "router exited with
  // status 2, restarting in 100 ms: " and the last line of its log.
  std::vector<std::string> poll();
  // Says which child keeps failing right at its start, so that restarting it more is pointless, and
  // how; empty: none does.
  const std::string& hopeless() const { return hopeless_; }
  // SIGTERM one after the other, the last of the list first, each when its successor has gone: what
  // comes later in the list uses what comes before. SIGKILL to whatever is left after drain_ms.
  void stop(int64_t drain_ms);

  int32_t running() const;
  pid_t pid(const std::string& name) const;  // 0 if it is not running

 private:
  struct Child {
    ChildSpec spec;
    pid_t pid = 0;
    int64_t started_us = 0;
    int64_t start_at_us = 0;
    int64_t backoff_ms = 0;
    int32_t quick_exits = 0;  // in a row, within seconds of the start
    int64_t log_begin = 0;    // of this start's lines in the log, bytes
  };
  void start(Child& child);
  std::string exited(Child& child, int status);

  const Clock& clock_;
  std::vector<Child> children_;
  std::string hopeless_;
};

}  // namespace baton
