#include "router/fake_kube.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/socket.h"

namespace baton {
namespace {

// False: stopped.
bool wait_readable(const ScopedFd& fd, const ScopedFd& stop) {
  pollfd waits[] = {{stop.get(), POLLIN, 0}, {fd.get(), POLLIN, 0}};
  ::poll(waits, 2, -1);
  return waits[0].revents == 0;
}

std::string header_of(const std::string& head, const std::string& name) {
  const size_t at = head.find(name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

}  // namespace

FakeKube::FakeKube()
    : listener_(std::move(listen_tcp(resolve({"127.0.0.1", 0}, true)->front()).value())),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { run(); }) {}

FakeKube::~FakeKube() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void FakeKube::then(Step step) {
  std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
}

KubeConfig FakeKube::config() const {
  KubeConfig config;
  config.api_server = "http://127.0.0.1:" + std::to_string(local_port(listener_));
  config.token_file.clear();
  config.retry_max_ms = 50;
  return config;
}

FakeKube::Request FakeKube::request(size_t n) {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [&] { return requests_.size() > n; });
  return requests_[n];
}

void FakeKube::run() {
  while (wait_readable(listener_, stop_)) {
    SocketAddress from;
    const Result<ScopedFd> client = accept_tcp(listener_, &from);
    if (client.ok()) serve(*client);
  }
}

// One client at a time, as KubeWatch is.
void FakeKube::serve(const ScopedFd& client) {
  std::string head;
  char bytes[4096];
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (!wait_readable(client, stop_)) return;
    const ssize_t n = ::recv(client.get(), bytes, sizeof bytes, 0);
    if (n <= 0) return;
    head.append(bytes, static_cast<size_t>(n));
  }
  Step step{.hold = true};
  {
    std::lock_guard lock(mutex_);
    requests_.push_back({head.substr(4, head.find(' ', 4) - 4), header_of(head, "Authorization")});
    if (!steps_.empty()) {
      step = std::move(steps_.front());
      steps_.pop_front();
    }
  }
  came_.notify_all();
  for (const std::string& piece : step.pieces)
    ::send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
  while (step.hold && wait_readable(client, stop_) &&
         ::recv(client.get(), bytes, sizeof bytes, 0) > 0) {
  }
}

std::string FakeKube::answer(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " Some Reason\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string FakeKube::watch_head() {
  return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
}

std::string FakeKube::chunk(const std::string& event) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", event.size() + 1);
  return size + event + "\n\r\n";
}

std::string FakeKube::slice(const std::string& name, const std::string& service, int version,
                            const std::vector<std::string>& endpoints) {
  std::string list;
  for (const std::string& endpoint : endpoints) {
    const bool unready = endpoint[0] == '!', terminating = endpoint[0] == '~';
    const std::string ip = unready || terminating ? endpoint.substr(1) : endpoint;
    list += list.empty() ? "" : ",";
    list += R"({"addresses":[")" + ip + R"("],"zone":"z1","conditions":{"ready":)" +
            (unready || terminating ? "false" : "true") + R"(,"serving":)" +
            (unready ? "false" : "true") + R"(,"terminating":)" + (terminating ? "true" : "false") +
            R"(},"targetRef":{"kind":"Pod","uid":"pod-)" + ip + R"("}})";
  }
  return R"({"metadata":{"name":")" + name + R"(","resourceVersion":")" + std::to_string(version) +
         R"(","labels":{"kubernetes.io/service-name":")" + service +
         R"("}},"addressType":"IPv4","ports":[{"name":"link","port":7100}],"endpoints":[)" + list +
         "]}";
}

std::string FakeKube::list(int version, const std::vector<std::string>& slices) {
  std::string items;
  for (const std::string& slice : slices) items += (items.empty() ? "" : ",") + slice;
  return R"({"kind":"EndpointSliceList","metadata":{"resourceVersion":")" +
         std::to_string(version) + R"("},"items":[)" + items + "]}";
}

std::string FakeKube::event(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}";
}

}  // namespace baton
