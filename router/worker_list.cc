#include "router/worker_list.h"

#include <chrono>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "base/socket.h"

namespace baton {
namespace {

constexpr std::string_view kDns = "dns:";
constexpr size_t kEntriesMax = 4096;

bool is_dns(const std::string& entry) {
  return entry.starts_with(kDns);
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r") + 1);
  text.erase(0, text.find_first_not_of(" \t"));
  return text;
}

// `also`: what the setting takes besides. Throws ConfigError.
void check_entry(const std::string& setting, const std::string& entry,
                 const std::string& also = {}) {
  const std::string address = is_dns(entry) ? entry.substr(kDns.size()) : entry;
  if (is_kube_entry(entry) || !parse_host_port(address).ok())
    throw ConfigError(setting + ": got \"" + entry + "\", want host:port or dns:name:port" + also);
}

std::vector<std::string> split_entries(const std::string& list) {
  std::vector<std::string> entries;
  std::istringstream in(list);
  for (std::string entry; std::getline(in, entry, ',');) {
    entry = trimmed(entry);
    if (entry.empty()) continue;
    if (!is_kube_entry(entry)) check_entry("workers", entry, " or kube:namespace/service:port");
    entries.push_back(entry);
  }
  return entries;
}

// One a line; empty lines and those that begin with '#' do not count. Throws ConfigError.
std::vector<std::string> read_entries(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw ConfigError("workers_file: cannot read " + file);
  std::vector<std::string> entries;
  for (std::string line; std::getline(in, line);) {
    line = trimmed(line);
    if (line.empty() || line.front() == '#') continue;
    check_entry("workers_file: " + file, line);
    entries.push_back(line);
    if (entries.size() > kEntriesMax)
      throw ConfigError("workers_file: got more than " + std::to_string(kEntriesMax) +
                        " entries in " + file);
  }
  return entries;
}

}  // namespace

WorkerList::WorkerList(const RouterConfig& config, Links links, Resolve resolve)
    : static_entries_(split_entries(config.workers)),
      file_(config.workers_file),
      interval_ms_(config.route.discovery_interval_ms),
      links_(std::move(links)),
      resolve_(std::move(resolve)) {
  if (!file_.empty()) file_entries_ = read_entries(file_);
  std::map<std::string, std::vector<std::string>> wanted;  // Services by namespace
  for (const std::string& entry : static_entries_) {
    if (!is_kube_entry(entry)) continue;
    const KubeService service = parse_kube_entry(entry, config.kube.namespace_file);
    services_[entry] = service;
    wanted[service.name_space].push_back(service.service);
  }
  for (const auto& [name_space, services] : wanted)
    watches_[name_space] =
        std::make_unique<KubeWatch>(config.kube, name_space, services, [this] { look_soon(); });
}

WorkerList::~WorkerList() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorkerList::start() {
  for (const auto& [name_space, watch] : watches_) watch->start();
  thread_ = std::thread([this] { run(); });
}

void WorkerList::look_soon() {
  {
    std::lock_guard lock(mutex_);
    look_soon_ = true;
  }
  wake_.notify_all();
}

void WorkerList::run() {
  for (std::unique_lock lock(mutex_); !stopping_;) {
    look_soon_ = false;
    lock.unlock();
    refresh();
    lock.lock();
    wake_.wait_for(lock, std::chrono::milliseconds(interval_ms_),
                   [this] { return stopping_ || look_soon_; });
  }
}

void WorkerList::refresh() {
  std::vector<Entry> view;
  const std::vector<std::string> texts = entries();
  size_t stale = told_.contains(file_) ? 1 : 0;
  for (const std::string& text : texts) {
    Entry entry{.text = text};
    if (is_dns(text)) {
      entry.addresses = resolve(text);
    } else if (is_kube_entry(text)) {
      entry.addresses = watched(text);
    } else {
      entry.addresses.emplace(text, AddressHint{});
    }
    if (const auto told = told_.find(text); told != told_.end()) {
      entry.trouble = told->second.reason;
      stale += told->second.stale ? 1 : 0;
    }
    view.push_back(std::move(entry));
  }
  std::map<std::string, AddressHint> now;
  std::set<std::string> wanted;
  for (const Entry& entry : view) {
    for (const auto& [address, hint] : entry.addresses) {
      // Whoever wants an address outdoes whoever does not.
      const auto [at, added] = now.try_emplace(address, hint);
      if (!added && hint.withheld.empty()) at->second = hint;
      if (hint.withheld.empty()) wanted.insert(address);
    }
  }
  {
    std::lock_guard lock(mutex_);
    view_ = std::move(view);
    stale_sources_ = stale;
  }
  give_hints(now);
  dial(std::move(wanted));
}

void WorkerList::give_hints(const std::map<std::string, AddressHint>& now) {
  if (watches_.empty()) return;  // nobody else has any
  for (auto it = hints_.begin(); it != hints_.end();) {
    const bool gone = !now.contains(it->first);
    if (gone) links_.hint(it->first, {.withheld = "gone"});
    it = gone ? hints_.erase(it) : std::next(it);
  }
  for (const auto& [address, hint] : now) {
    if (!hint.withheld.empty() && !hints_.contains(address)) continue;  // never dialled
    AddressHint& told = hints_[address];
    if (std::exchange(told, hint) != hint) links_.hint(address, hint);
  }
}

void WorkerList::dial(std::set<std::string> wanted) {
  for (const std::string& address : wanted) {
    if (dialled_.contains(address)) continue;
    log_info("worker_address_added", {{"address", address}});
    links_.connect(address);
  }
  for (const std::string& address : dialled_) {
    if (wanted.contains(address)) continue;
    log_info("worker_address_gone", {{"address", address}});
    links_.release(address);
  }
  dialled_ = std::move(wanted);
}

std::vector<WorkerList::Entry> WorkerList::view() const {
  std::lock_guard lock(mutex_);
  return view_;
}

size_t WorkerList::stale_sources() const {
  std::lock_guard lock(mutex_);
  return stale_sources_;
}

void WorkerList::tell(const char* event, const std::string& subject, Trouble trouble) {
  if (trouble.reason.empty()) {
    told_.erase(subject);
    return;
  }
  Trouble& told = told_[subject];
  if (told.reason != trouble.reason)
    log_warn(event, {{"subject", subject}, {"reason", trouble.reason}});
  told = std::move(trouble);
}

std::vector<std::string> WorkerList::entries() {
  if (!file_.empty()) {
    try {
      file_entries_ = read_entries(file_);
      tell("workers_file_kept", file_, {});
    } catch (const ConfigError& error) {
      tell("workers_file_kept", file_, {error.what(), true});
    }
  }
  std::vector<std::string> entries = static_entries_;
  entries.insert(entries.end(), file_entries_.begin(), file_entries_.end());
  return entries;
}

std::map<std::string, AddressHint> WorkerList::resolve(const std::string& entry) {
  const Result<std::vector<std::string>> found = resolve_(entry.substr(kDns.size()));
  std::vector<std::string>& answer = last_answers_[entry];
  if (found.ok() && !found->empty()) {
    answer = *found;
    tell("worker_name_kept", entry, {});
  } else {
    tell("worker_name_kept", entry, {found.ok() ? "no address" : found.status().message(), true});
  }
  std::map<std::string, AddressHint> addresses;
  for (const std::string& address : answer) addresses.emplace(address, AddressHint{});
  return addresses;
}

std::map<std::string, AddressHint> WorkerList::watched(const std::string& entry) {
  const KubeService& service = services_.at(entry);
  const KubeWatch& watch = *watches_.at(service.name_space);
  KubeEndpoints endpoints = watch.endpoints(service.service, service.port);
  if (const std::string trouble = watch.trouble(); !trouble.empty()) {
    told_[entry] = {trouble, true};  // the watch has logged it
  } else {
    tell("worker_service_empty", entry, {endpoints.empty() ? "it has no endpoint" : "", false});
  }
  return endpoints;
}

Result<std::vector<std::string>> WorkerList::resolve_by_system(const std::string& name_port) {
  const Result<HostPort> target = parse_host_port(name_port);
  if (!target.ok()) return target.status();
  const auto found = baton::resolve(*target, /*numeric_only=*/false);
  if (!found.ok()) return found.status();
  std::vector<std::string> addresses;
  for (const SocketAddress& address : *found) addresses.push_back(to_text(address));
  return addresses;
}

}  // namespace baton
