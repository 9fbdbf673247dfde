// What EndpointSlices (discovery.k8s.io/v1) say of a Service's endpoints: objects of lists and
// watch events in, addresses out. Called by kube_watch.cc. Plain state of the caller's thread, no
// I/O.
//
// A Service has any number of slices, by address family and by size, and while a controller moves
// an endpoint it may be in two of them. An address may be one of a pod that is going and of its
// successor at once. So slices are merged by address, the better word counts; a pod with addresses
// of both families is taken by its IPv4 one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "router/address_hint.h"
#include "router/json_text.h"

namespace baton {

// Withheld: "not ready" or "terminating". By "10.0.0.2:7100", "[fd00::2]:7100".
using KubeEndpoints = std::map<std::string, AddressHint>;

class KubeSlices {
 public:
  // The objects of a list take the place of all there were. INVALID_ARGUMENT, and nothing has
  // changed, for what is no list of slices.
  Status replace(const Json& list);

  struct Change {
    bool gone = false;  // the version asked for is too old (status 410): a new list is needed
    std::string error;  // another error that the API server tells by an event
  };
  // One event of a watch.
  Result<Change> apply(const Json& event);

  // Where a watch has to begin; empty before the first list.
  const std::string& resource_version() const { return resource_version_; }

  // `port`: a number, or the name of one of the slices' ports. Of a Service that is not known:
  // nothing.
  KubeEndpoints endpoints(const std::string& service, const std::string& port) const;

 private:
  struct Endpoint {
    std::vector<std::string> addresses;
    std::string uid;  // of the pod; may be empty
    AddressHint hint;
  };
  struct Slice {
    std::string service;
    std::string family;  // "IPv4", "IPv6"
    std::map<std::string, int32_t> ports;
    std::vector<Endpoint> endpoints;
  };
  static std::optional<Slice> read_slice(const Json& object);
  static std::string name_of(const Json& object);

  std::map<std::string, Slice> slices_;  // by name
  std::string resource_version_;
};

}  // namespace baton
