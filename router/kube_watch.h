// Workers of Kubernetes Services. An entry of `workers` reads
//
//     kube:NAMESPACE/SERVICE:PORT      e.g. kube:prod/baton-decode:7100
//     kube:SERVICE:PORT                the router's own namespace (kube.namespace_file)
//
// several entries separated by commas; PORT is a number, or the name of a port of the Service. The
// service account must be allowed to list and watch endpointslices (discovery.k8s.io) there.
//
// KubeWatch keeps a view of the Services of one namespace: a list, then a watch from the list's
// version on, for ever. The server ends a watch now and then, a proxy or a restart cuts it off, a
// silent one is given up: the next begins at the last version seen. A version that is too old
// (status 410) needs a new list. Whatever fails, the last view stays.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "router/kube_api.h"
#include "router/kube_slices.h"

namespace baton {

struct KubeService {
  std::string name_space;
  std::string service;
  std::string port;
};

bool is_kube_entry(const std::string& entry);
// Throws ConfigError, also when the entry names no namespace and `namespace_file` is not there.
KubeService parse_kube_entry(const std::string& entry, const std::string& namespace_file);

class KubeWatch {
 public:
  // `changed` is called on the watch's thread, after each change of what view() or trouble() says.
  KubeWatch(const KubeConfig& config, std::string name_space, std::vector<std::string> services,
            std::function<void()> changed);
  ~KubeWatch();
  KubeWatch(const KubeWatch&) = delete;
  KubeWatch& operator=(const KubeWatch&) = delete;

  void start();
  // Thread-safe. Nothing before the first list.
  KubeEndpoints endpoints(const std::string& service, const std::string& port) const;
  // Thread-safe: what is wrong with the API server now; empty: nothing.
  std::string trouble() const;

 private:
  void run();
  Status list();
  Status watch();
  Status take_line(const std::string& line);
  std::string target(const std::string& rest) const;
  Status check(const Result<KubeApi::Answer>& answer);
  void tell(const Status& status);
  int64_t pause_ms();

  const KubeConfig config_;
  const std::string name_space_;
  const std::vector<std::string> services_;
  const std::function<void()> changed_;
  const KubeApi api_;

  // The thread's.
  bool needs_list_ = true;
  int64_t failures_ = 0;  // in a row
  int64_t retry_after_s_ = 0;
  std::minstd_rand random_;  // spreads what many routers do at once

  mutable std::mutex mutex_;
  KubeSlices slices_;                      // guarded by mutex_
  std::string trouble_ = "no answer yet";  // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
