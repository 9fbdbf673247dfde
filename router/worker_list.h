// Which workers the router dials: the entries of `workers` and of the lines of `workers_file`, each
// "host:port" or "dns:name:port" for every address that the name has now. Looks at the file and
// asks the name service on a thread of its own, every route.discovery_interval_ms. Called by
// router.cc.
//
// No answer, an empty answer or a file that cannot be used leaves what there was: a hiccup must not
// cut traffic. For the same reason an address that has vanished is only released: its link stays
// until it ends by itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace baton {

class WorkerList {
 public:
  // Thread-safe functions; called from the list's thread.
  struct Links {
    std::function<void(const std::string& address)> connect;
    std::function<void(const std::string& address)> release;
  };
  // The numeric addresses ("10.0.0.2:7100") of "name:port"; may take seconds.
  using Resolve = std::function<Result<std::vector<std::string>>(const std::string& name_port)>;

  // Throws ConfigError for an entry that makes no sense and a file that cannot be read.
  WorkerList(const RouterConfig& config, Links links, Resolve resolve = resolve_by_system);
  ~WorkerList();  // waits for a question that is being asked
  WorkerList(const WorkerList&) = delete;
  WorkerList& operator=(const WorkerList&) = delete;

  void start();
  // One look at everything, on the caller's thread: what the thread does each time.
  void refresh();

  static Result<std::vector<std::string>> resolve_by_system(const std::string& name_port);

 private:
  void run();
  std::vector<std::string> entries();
  void resolve(const std::string& entry, std::set<std::string>& wanted);

  const std::vector<std::string> static_entries_;
  const std::string file_;
  const int64_t interval_ms_;
  const Links links_;
  const Resolve resolve_;

  // The thread's, once started.
  std::vector<std::string> file_entries_;
  std::map<std::string, std::vector<std::string>> last_answers_;  // by dns: entry
  std::map<std::string, std::string> told_;  // trouble by entry or file: logged once
  std::set<std::string> dialled_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
