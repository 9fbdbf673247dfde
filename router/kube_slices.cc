#include "router/kube_slices.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace baton {
namespace {

constexpr const char* kServiceLabel = "kubernetes.io/service-name";
constexpr int32_t kGone = 410;

// Members of what another program has written: absent and of another type are alike.
const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string text(const Json& object, const char* name) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

bool boolean(const Json& object, const char* name, bool absent) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : absent;
}

int32_t integer(const Json& object, const char* name) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_number_integer() ? value->get<int32_t>() : 0;
}

const Json& items(const Json& object, const char* name) {
  static const Json kNone = Json::array();
  const Json* value = member(object, name);
  return value != nullptr && value->is_array() ? *value : kNone;
}

std::string metadata(const Json& object, const char* name) {
  const Json* value = member(object, "metadata");
  return value == nullptr ? "" : text(*value, name);
}

// Absent conditions: `ready` counts as true, the others as they would be for a pod that runs.
AddressHint read_hint(const Json& endpoint) {
  const Json* given = member(endpoint, "conditions");
  const Json conditions = given == nullptr ? Json::object() : *given;
  AddressHint hint{.zone = text(endpoint, "zone")};
  if (boolean(conditions, "terminating", false)) {
    hint.withheld = "terminating";
  } else if (!boolean(conditions, "ready", true)) {
    hint.withheld = "not ready";
  }
  return hint;
}

std::string with_port(const std::string& family, const std::string& address, int32_t port) {
  const std::string host = family == "IPv6" ? "[" + address + "]" : address;
  return host + ":" + std::to_string(port);
}

}  // namespace

std::string KubeSlices::name_of(const Json& object) {
  return metadata(object, "name");
}

// Nothing for what names hosts instead of addresses, and for what belongs to no Service.
std::optional<KubeSlices::Slice> KubeSlices::read_slice(const Json& object) {
  Slice slice{.family = text(object, "addressType")};
  const Json* labels = member(object, "metadata");
  labels = labels == nullptr ? nullptr : member(*labels, "labels");
  if (labels != nullptr) slice.service = text(*labels, kServiceLabel);
  const bool numeric = slice.family == "IPv4" || slice.family == "IPv6";
  if (!numeric || slice.service.empty()) return std::nullopt;
  for (const Json& port : items(object, "ports"))
    slice.ports[text(port, "name")] = integer(port, "port");
  for (const Json& entry : items(object, "endpoints")) {
    Endpoint endpoint{.hint = read_hint(entry)};
    for (const Json& address : items(entry, "addresses"))
      if (address.is_string()) endpoint.addresses.push_back(address.get<std::string>());
    if (const Json* target = member(entry, "targetRef")) endpoint.uid = text(*target, "uid");
    slice.endpoints.push_back(std::move(endpoint));
  }
  return slice;
}

Status KubeSlices::replace(const Json& list) {
  const Json* objects = member(list, "items");
  const std::string version = metadata(list, "resourceVersion");
  // An empty list may come as null.
  const bool is_list = text(list, "kind") == "EndpointSliceList" && !version.empty() &&
                       (objects == nullptr || objects->is_array());
  if (!is_list) return invalid_argument("API server: got no EndpointSliceList");
  slices_.clear();
  for (const Json& object : items(list, "items"))
    if (auto slice = read_slice(object)) slices_[name_of(object)] = std::move(*slice);
  resource_version_ = version;
  return {};
}

Result<KubeSlices::Change> KubeSlices::apply(const Json& event) {
  const std::string type = text(event, "type");
  const Json* object = member(event, "object");
  if (object == nullptr) return invalid_argument("API server: got an event without an object");
  if (type == "ERROR") {
    return Change{.gone = integer(*object, "code") == kGone,
                  .error = text(*object, "message").substr(0, 200)};
  }
  const std::string version = metadata(*object, "resourceVersion");
  if (version.empty()) return invalid_argument("API server: got an event without a version");
  if (type == "ADDED" || type == "MODIFIED") {
    slices_.erase(name_of(*object));
    if (auto slice = read_slice(*object)) slices_[name_of(*object)] = std::move(*slice);
  } else if (type == "DELETED") {
    slices_.erase(name_of(*object));
  }
  resource_version_ = version;
  return Change{};
}

KubeEndpoints KubeSlices::endpoints(const std::string& service, const std::string& port) const {
  int32_t number = 0;
  std::from_chars(port.data(), port.data() + port.size(), number);
  std::set<std::string> pods;  // that have an IPv4 address
  for (const auto& [name, slice] : slices_) {
    if (slice.service != service || slice.family != "IPv4") continue;
    for (const Endpoint& endpoint : slice.endpoints) pods.insert(endpoint.uid);
  }
  pods.erase("");
  KubeEndpoints merged;
  for (const auto& [name, slice] : slices_) {
    const auto named = slice.ports.find(port);
    const int32_t to = number > 0 ? number : named != slice.ports.end() ? named->second : 0;
    if (slice.service != service || to == 0) continue;
    for (const Endpoint& endpoint : slice.endpoints) {
      if (slice.family == "IPv6" && pods.contains(endpoint.uid)) continue;
      if (endpoint.addresses.empty()) continue;
      // All of them are the same endpoint: the first is as good as any.
      const std::string address = with_port(slice.family, endpoint.addresses.front(), to);
      const auto [at, added] = merged.try_emplace(address, endpoint.hint);
      if (!added && endpoint.hint.withheld.empty()) at->second = endpoint.hint;
    }
  }
  return merged;
}

}  // namespace baton
