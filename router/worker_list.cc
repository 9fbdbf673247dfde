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

// Throws ConfigError.
void check_entry(const std::string& setting, const std::string& entry) {
  const std::string address = is_dns(entry) ? entry.substr(kDns.size()) : entry;
  if (!parse_host_port(address).ok())
    throw ConfigError(setting + ": got \"" + entry + "\", want host:port or dns:name:port");
}

std::vector<std::string> split_entries(const std::string& list) {
  std::vector<std::string> entries;
  std::istringstream in(list);
  for (std::string entry; std::getline(in, entry, ',');) {
    entry = trimmed(entry);
    if (entry.empty()) continue;
    check_entry("workers", entry);
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
  thread_ = std::thread([this] { run(); });
}

void WorkerList::run() {
  const auto stopping = [this] { return stopping_; };
  for (std::unique_lock lock(mutex_); !stopping_;) {
    lock.unlock();
    refresh();
    lock.lock();
    wake_.wait_for(lock, std::chrono::milliseconds(interval_ms_), stopping);
  }
}

void WorkerList::refresh() {
  std::set<std::string> wanted;
  for (const std::string& entry : entries()) {
    if (is_dns(entry)) {
      resolve(entry, wanted);
    } else {
      wanted.insert(entry);
    }
  }
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

std::vector<std::string> WorkerList::entries() {
  if (!file_.empty()) {
    try {
      file_entries_ = read_entries(file_);
      told_.erase(file_);
    } catch (const ConfigError& error) {
      if (std::exchange(told_[file_], error.what()) != error.what())
        log_error("workers_file_kept", {{"reason", error.what()}});
    }
  }
  std::vector<std::string> entries = static_entries_;
  entries.insert(entries.end(), file_entries_.begin(), file_entries_.end());
  return entries;
}

void WorkerList::resolve(const std::string& entry, std::set<std::string>& wanted) {
  const Result<std::vector<std::string>> found = resolve_(entry.substr(kDns.size()));
  std::vector<std::string>& answer = last_answers_[entry];
  if (found.ok() && !found->empty()) {
    answer = *found;
    told_.erase(entry);
  } else {
    const std::string reason = found.ok() ? "no address" : found.status().message();
    if (std::exchange(told_[entry], reason) != reason)
      log_warn("worker_name_kept",
               {{"entry", entry}, {"reason", reason}, {"addresses", answer.size()}});
  }
  wanted.insert(answer.begin(), answer.end());
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
