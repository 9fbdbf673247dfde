#include "router/kube_watch.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"

namespace baton {
namespace {

constexpr std::string_view kPrefix = "kube:";
constexpr int32_t kJsonDepthMax = 64;
constexpr size_t kListBytesMax = 64 << 20;
constexpr size_t kEventBytesMax = 8 << 20;
constexpr size_t kNameBytesMax = 253;
constexpr int64_t kFirstPauseMs = 100;
constexpr int32_t kGone = 410;

// The characters of names in Kubernetes, none of which means something in a URL.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (std::isalnum(c) && !std::isupper(c)) || c == '-' || c == '.';
         });
}

std::string read_namespace(const std::string& entry, const std::string& file) {
  std::ifstream in(file);
  std::string name;
  if (!(in >> name) || !is_name(name))
    throw ConfigError("workers: " + entry + " names no namespace, and there is none in " + file +
                      " (kube.namespace_file), want kube:NAMESPACE/SERVICE:PORT");
  return name;
}

Status too_long(const std::string& what, size_t bytes_max) {
  return invalid_argument("API server: " + what + ": got more than " + std::to_string(bytes_max) +
                          " bytes, want at most so many");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

bool is_kube_entry(const std::string& entry) {
  return entry.starts_with(kPrefix);
}

KubeService parse_kube_entry(const std::string& entry, const std::string& namespace_file) {
  const std::string text = entry.substr(kPrefix.size());
  const size_t colon = std::min(text.rfind(':'), text.size());
  const size_t slash = text.find('/');
  const bool has_namespace = slash != std::string::npos && slash < colon;
  KubeService service;
  service.port = text.substr(std::min(colon + 1, text.size()));
  service.service = text.substr(0, colon).substr(has_namespace ? slash + 1 : 0);
  if (has_namespace) service.name_space = text.substr(0, slash);
  const bool all_good = is_name(service.service) && is_name(service.port) &&
                        (service.name_space.empty() || is_name(service.name_space));
  if (!all_good)
    throw ConfigError("workers: got \"" + entry + "\", want kube:NAMESPACE/SERVICE:PORT");
  if (service.name_space.empty()) service.name_space = read_namespace(entry, namespace_file);
  return service;
}

KubeWatch::KubeWatch(const KubeConfig& config, std::string name_space,
                     std::vector<std::string> services, std::function<void()> changed)
    : config_(config),
      name_space_(std::move(name_space)),
      services_(std::move(services)),
      changed_(std::move(changed)),
      api_(config),
      random_(std::random_device()()) {}

KubeWatch::~KubeWatch() {
  api_.stop();
  if (thread_.joinable()) thread_.join();
}

void KubeWatch::start() {
  thread_ = std::thread([this] { run(); });
}

KubeEndpoints KubeWatch::endpoints(const std::string& service, const std::string& port) const {
  std::lock_guard lock(mutex_);
  return slices_.endpoints(service, port);
}

std::string KubeWatch::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

void KubeWatch::run() {
  do {
    retry_after_s_ = 0;
    const Status status = needs_list_ ? list() : watch();
    if (status.code() == Code::kCancelled) return;
    failures_ = status.ok() ? 0 : failures_ + 1;
    tell(status);
  } while (api_.rest(pause_ms()));
}

// After success hardly any: a watch that the server ends at once must not become a spin.
int64_t KubeWatch::pause_ms() {
  const int64_t doubled = kFirstPauseMs << std::min<int64_t>(failures_, 16);
  const int64_t pause = failures_ == 0 ? kFirstPauseMs : std::min(doubled, config_.retry_max_ms);
  const auto jitter = static_cast<int64_t>(random_() % static_cast<uint64_t>(pause / 2 + 1));
  return std::max(pause / 2 + jitter, std::min(retry_after_s_ * 1000, config_.retry_max_ms));
}

void KubeWatch::tell(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(trouble_, status.message()) == status.message()) return;
  }
  if (status.ok()) {
    log_info("kube_watching", {{"namespace", name_space_}, {"services", joined(services_)}});
  } else {
    log_warn("kube_view_kept", {{"namespace", name_space_},
                                {"services", joined(services_)},
                                {"reason", status.message()}});
  }
  changed_();
}

std::string KubeWatch::target(const std::string& rest) const {
  std::string services = joined(services_);
  for (size_t at = 0; (at = services.find(',', at)) != std::string::npos; at += 3)
    services.replace(at, 1, "%2C");
  return "/apis/discovery.k8s.io/v1/namespaces/" + name_space_ +
         "/endpointslices?labelSelector=kubernetes.io%2Fservice-name%20in%20%28" + services +
         "%29" + rest;
}

// OK: the answer came whole and its status is 200.
Status KubeWatch::check(const Result<KubeApi::Answer>& answer) {
  if (!answer.ok()) return answer.status();
  retry_after_s_ = answer->retry_after_s;
  if (answer->status == 200) return {};
  if (answer->status == kGone) needs_list_ = true;
  return unavailable("API server: status " + std::to_string(answer->status) + ": " +
                     answer->reason);
}

Status KubeWatch::list() {
  std::string body;
  const auto answer = api_.get(target(""), config_.request_timeout_ms, [&](std::string_view bytes) {
    body += bytes;
    return body.size() <= kListBytesMax;
  });
  if (Status status = check(answer); !status.ok()) return status;
  if (body.size() > kListBytesMax) return too_long("list", kListBytesMax);
  const Result<Json> json = parse_json_object(body, kJsonDepthMax);
  if (!json.ok()) return invalid_argument("API server: list: " + json.status().message());
  {
    std::lock_guard lock(mutex_);
    if (Status status = slices_.replace(*json); !status.ok()) return status;
  }
  needs_list_ = false;
  changed_();
  return {};
}

Status KubeWatch::watch() {
  // Several routers, and the watches of one, do not all come back in the same second.
  const int64_t timeout_s = config_.watch_timeout_s + static_cast<int64_t>(random_() % 60);
  const std::string rest =
      "&watch=1&allowWatchBookmarks=true&resourceVersion=" + slices_.resource_version() +
      "&timeoutSeconds=" + std::to_string(timeout_s);
  std::string text;
  Status status;
  const auto answer = api_.get(target(rest), config_.idle_timeout_ms, [&](std::string_view bytes) {
    failures_ = 0;
    tell({});
    text += bytes;
    for (size_t end; status.ok() && (end = text.find('\n')) != std::string::npos;) {
      status = take_line(text.substr(0, end));
      text.erase(0, end + 1);
    }
    if (status.ok() && text.size() > kEventBytesMax) status = too_long("event", kEventBytesMax);
    return status.ok();
  });
  if (status.ok()) return check(answer);
  needs_list_ = true;  // whatever it was: begin anew
  return status;
}

// An event. What the thread has seen so far counts, however the watch ends.
Status KubeWatch::take_line(const std::string& line) {
  if (line.empty()) return {};
  const Result<Json> event = parse_json_object(line, kJsonDepthMax);
  if (!event.ok()) return invalid_argument("API server: event: " + event.status().message());
  {
    std::lock_guard lock(mutex_);
    const Result<KubeSlices::Change> change = slices_.apply(*event);
    if (!change.ok()) return change.status();
    if (change->gone) return unavailable("API server: the version is too old (410)");
    if (!change->error.empty()) return unavailable("API server: " + change->error);
  }
  changed_();
  return {};
}

}  // namespace baton
