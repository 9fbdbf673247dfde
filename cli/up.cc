#include "cli/up.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "base/scoped_fd.h"
#include "base/status.h"
#include "cli/http_get.h"
#include "cli/status_line.h"
#include "cli/supervisor.h"

namespace baton {

namespace {

struct UpOptions {
  std::string model;
  std::string host = "127.0.0.1";
  int32_t port = 8000;
  int32_t prefill = 1;
  int32_t decode = 1;
  std::string device = "cpu";
  int32_t threads = 0;
  std::string log_dir;
  std::vector<std::string> worker_args;
  std::vector<std::string> router_args;
  double ready_timeout_s = 300;
  int64_t drain_timeout_ms = 30000;
};

// A port that was free a moment ago. The workers listen on loopback only.
int32_t free_port() {
  const ScopedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, size) != 0 || getsockname(fd.get(), generic, &size) != 0) {
    throw ConfigError("no free port on 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

std::string default_log_dir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      state != nullptr ? state : std::string(home != nullptr ? home : "/tmp") + "/.local/state";
  return base + "/baton/logs";
}

std::filesystem::path program(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

// A folder of this run's own, gone at the end: holds the cluster token that only these processes
// share.
class RunFolder {
 public:
  RunFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw ConfigError("baton up: cannot make a folder " + pattern);
    path_ = pattern;
    std::random_device random;
    std::ofstream token(token_file());
    for (int i = 0; i < 8; ++i) token << std::hex << random();
    token << "\n";
    token.close();
    chmod(token_file().c_str(), 0600);
  }
  ~RunFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string token_file() const { return path_ / "cluster-token"; }

 private:
  std::filesystem::path path_;
};

std::vector<ChildSpec> plan_children(const UpOptions& options, const RunFolder& folder) {
  std::vector<ChildSpec> children;
  std::string workers;
  const auto add_worker = [&](const char* role, int32_t index) {
    const std::string address = "127.0.0.1:" + std::to_string(free_port());
    const std::string name = std::string(role) + "-" + std::to_string(index);
    ChildSpec child{.name = name, .argv = {}, .log_file = options.log_dir + "/" + name + ".log"};
    child.argv = {program("baton-worker"),
                  "--role",
                  role,
                  "--listen",
                  address,
                  "--model",
                  options.model,
                  "--device",
                  options.device,
                  "--link.token-file",
                  folder.token_file()};
    if (options.threads > 0)
      child.argv.insert(child.argv.end(), {"--threads", std::to_string(options.threads)});
    child.argv.insert(child.argv.end(), options.worker_args.begin(), options.worker_args.end());
    workers += (workers.empty() ? "" : ",") + address;
    children.push_back(std::move(child));
  };
  const bool disaggregated = options.prefill > 0 && options.decode > 0;
  for (int32_t i = 0; i < options.prefill; ++i) add_worker(disaggregated ? "prefill" : "both", i);
  for (int32_t i = 0; i < options.decode; ++i) add_worker(disaggregated ? "decode" : "both", i);

  ChildSpec router{.name = "router", .argv = {}, .log_file = options.log_dir + "/router.log"};
  router.argv = {program("baton-router"),
                 "--model",
                 options.model,
                 "--host",
                 options.host,
                 "--port",
                 std::to_string(options.port),
                 "--workers",
                 workers,
                 "--link.token-file",
                 folder.token_file()};
  router.argv.insert(router.argv.end(), options.router_args.begin(), options.router_args.end());
  children.push_back(std::move(router));
  return children;
}

// SIGINT and SIGTERM are blocked and waited for: true when one came within the time.
bool stop_signal_within_ms(int64_t ms) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  const timespec wait{.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000};
  return sigtimedwait(&set, nullptr, &wait) > 0;
}

void print_exits(Supervisor& supervisor, bool live) {
  for (const std::string& line : supervisor.poll())
    std::fprintf(stderr, "%s%s\n", live ? "\r\033[K" : "", line.c_str());
  if (!supervisor.hopeless().empty()) throw ConfigError(supervisor.hopeless());
}

// False: asked to stop before it was ready.
bool wait_ready(const UpOptions& options, Supervisor& supervisor, const std::string& url) {
  const SystemClock clock;
  const auto timeout_us = static_cast<int64_t>(options.ready_timeout_s * 1e6);
  for (const int64_t begin_us = clock.now_us(); clock.now_us() - begin_us < timeout_us;) {
    print_exits(supervisor, false);
    if (http_get(url + "/readyz").status == 200) return true;
    if (stop_signal_within_ms(50)) return false;
  }
  throw ConfigError("not ready after " + std::to_string(options.ready_timeout_s) +
                    " s; logs are in " + options.log_dir);
}

void print_welcome(const UpOptions& options, const std::string& url) {
  std::printf("Baton is ready at %s (%d prefill, %d decode; logs in %s)\n\n", url.c_str(),
              options.prefill, options.decode, options.log_dir.c_str());
  std::printf(
      "  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me about relay "
      "races.\"}], \"max_tokens\": 150, \"temperature\": 0.2}'\n\n",
      url.c_str());
  std::fflush(stdout);
}

void watch(Supervisor& supervisor, const std::string& url) {
  const bool live = isatty(STDERR_FILENO) != 0;
  Scrape before;
  while (!stop_signal_within_ms(live ? 1000 : 200)) {
    print_exits(supervisor, live);
    if (!live) continue;
    const HttpText metrics = http_get(url + "/metrics");
    if (metrics.status != 200) continue;
    Scrape after = parse_metrics(metrics.body);
    std::fprintf(stderr, "\r\033[K%s", status_line(before, after, 1.0).c_str());
    before = std::move(after);
  }
  if (live) std::fprintf(stderr, "\n");
}

void run_up(UpOptions options) {
  if (options.prefill + options.decode < 1)
    throw ConfigError("got no worker, want --prefill or --decode of at least 1");
  if (options.log_dir.empty()) options.log_dir = default_log_dir();
  std::filesystem::create_directories(options.log_dir);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);

  const std::string reachable = options.host == "0.0.0.0" ? "127.0.0.1" : options.host;
  const std::string url =
      "http://" + (reachable.find(':') == std::string::npos ? reachable : "[" + reachable + "]") +
      ":" + std::to_string(options.port);
  if (http_get(url + "/livez").status != 0) {
    throw ConfigError("--port: got " + std::to_string(options.port) +
                      ", where another server answers already; want a free one");
  }
  const RunFolder folder;
  const SystemClock clock;
  Supervisor supervisor(plan_children(options, folder), clock);
  if (wait_ready(options, supervisor, url)) {
    print_welcome(options, url);
    watch(supervisor, url);
  }
  std::fprintf(stderr, "Draining ...\n");
  supervisor.stop(options.drain_timeout_ms);
}

}  // namespace

void add_up_command(CLI::App& app) {
  auto options = std::make_shared<UpOptions>();
  CLI::App* up = app.add_subcommand("up", "Run a router and its workers on this host");
  up->add_option("--model", options->model, "GGUF file or Hugging Face folder")
      ->required()
      ->check(CLI::ExistingPath);
  up->add_option("--host", options->host, "Address of the API")->capture_default_str();
  up->add_option("--port", options->port, "Port of the API")
      ->capture_default_str()
      ->check(CLI::Range(1, 65535));
  up->add_option("--prefill", options->prefill, "Prefill workers")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  up->add_option("--decode", options->decode,
                 "Decode workers; with none of one kind all workers do both")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  up->add_option("--device", options->device, "cpu, or cuda in builds with CUDA")
      ->capture_default_str();
  up->add_option("--threads", options->threads, "Compute threads of each worker; 0 = all cores")
      ->capture_default_str();
  up->add_option("--log-dir", options->log_dir, "Where the processes log to");
  up->add_option("--worker-arg", options->worker_args,
                 "Passed to each worker, e.g. --worker-arg=--kv.page-tokens=64");
  up->add_option("--router-arg", options->router_args, "Passed to the router");
  up->add_option("--ready-timeout-s", options->ready_timeout_s, "Give up when not ready by then")
      ->capture_default_str();
  up->add_option("--drain-timeout-ms", options->drain_timeout_ms, "SIGKILL after it")
      ->capture_default_str();
  up->callback([options] { run_up(*options); });
}

}  // namespace baton
