// Which workers the router dials: the entries of `workers` and of the lines of `workers_file`, each
// "host:port" or "dns:name:port" for every address that the name has now; in `workers` also
// "kube:namespace/service:port" for every endpoint that is ready (kube_watch.h). Looks at the file
// and asks the name service on a thread of its own, every route.discovery_interval_ms, and at what
// the API server says when it says it. Called by router.cc.
//
// No answer, an empty answer or a file that cannot be used leaves what there was: a hiccup must not
// cut traffic. For the same reason an address that has vanished is only released: its link stays
// until it ends by itself. Kubernetes' word counts for more: an endpoint that is not ready, is
// terminating or has gone keeps its link and what runs there, and gets nothing new.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "router/address_hint.h"
#include "router/kube_watch.h"

namespace baton {

class WorkerList {
 public:
  // Thread-safe functions; called from the list's thread.
  struct Links {
    std::function<void(const std::string& address)> connect;
    std::function<void(const std::string& address)> release;
    // Of an address that has been dialled or is about to be; each change.
    std::function<void(const std::string& address, const AddressHint& hint)> hint;
  };
  // The numeric addresses ("10.0.0.2:7100") of "name:port"; may take seconds.
  using Resolve = std::function<Result<std::vector<std::string>>(const std::string& name_port)>;

  // What an entry stands for now.
  struct Entry {
    std::string text;
    std::string trouble;  // why it could not be looked at the last time
    std::map<std::string, AddressHint> addresses;
  };

  // Throws ConfigError for an entry that makes no sense and a file that cannot be read.
  WorkerList(const RouterConfig& config, Links links, Resolve resolve = resolve_by_system);
  ~WorkerList();  // waits for a question that is being asked
  WorkerList(const WorkerList&) = delete;
  WorkerList& operator=(const WorkerList&) = delete;

  void start();
  // One look at everything, on the caller's thread: what the thread does each time.
  void refresh();

  // Thread-safe; as of the last look.
  std::vector<Entry> view() const;
  // How many of the sources of addresses (the file, each dns: and each kube: entry) could not be
  // asked, so that what they said before counts.
  size_t stale_sources() const;

  static Result<std::vector<std::string>> resolve_by_system(const std::string& name_port);

 private:
  void run();
  void look_soon();
  std::vector<std::string> entries();
  std::map<std::string, AddressHint> resolve(const std::string& entry);
  std::map<std::string, AddressHint> watched(const std::string& entry);
  void give_hints(const std::map<std::string, AddressHint>& now);
  void dial(std::set<std::string> wanted);
  struct Trouble {
    std::string reason;  // empty: all is well
    bool stale = false;  // what there was before counts
  };
  // Logs `event` when the reason is another than the last time.
  void tell(const char* event, const std::string& subject, Trouble trouble);

  const std::vector<std::string> static_entries_;
  const std::string file_;
  const int64_t interval_ms_;
  const Links links_;
  const Resolve resolve_;
  std::map<std::string, KubeService> services_;  // by kube: entry

  // The thread's, once started.
  std::vector<std::string> file_entries_;
  std::map<std::string, std::vector<std::string>> last_answers_;  // by dns: entry
  std::map<std::string, Trouble> told_;                           // by entry or file
  std::set<std::string> dialled_;
  std::map<std::string, AddressHint> hints_;  // as told, of addresses that were dialled once

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Entry> view_;   // guarded by mutex_
  size_t stale_sources_ = 0;  // guarded by mutex_
  bool look_soon_ = false;    // guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  std::thread thread_;
  std::map<std::string, std::unique_ptr<KubeWatch>>
      watches_;  // by namespace; they call look_soon()
};

}  // namespace baton
