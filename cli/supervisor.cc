#include "cli/supervisor.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace baton {

namespace {

constexpr int64_t kQuickExitUs = 5'000'000;  // an exit this soon counts as a failed start
constexpr int32_t kQuickExitsMax = 5;
constexpr int64_t kBackoffFirstMs = 100;
constexpr int64_t kBackoffMaxMs = 5000;
constexpr int64_t kLogTailBytes = 8192;

void sleep_ms(int64_t ms) {
  const timespec pause{.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000};
  nanosleep(&pause, nullptr);
}

// Runs in the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(const ChildSpec& spec, char* const* argv, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before prctl took effect
  setpgid(0, 0);                        // Ctrl-C reaches the supervisor alone, which then drains
  std::signal(SIGTERM, SIG_DFL);        // our handlers are not the child's
  std::signal(SIGINT, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int log = open(spec.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  if (log >= 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
  }
  execv(argv[0], argv);
  _exit(127);
}

int64_t bytes_of(const std::string& file) {
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(file, ignored);
  return ignored ? 0 : static_cast<int64_t>(bytes);
}

// What a log says last, from a byte on.
std::string last_line(const std::string& file, int64_t begin) {
  std::ifstream in(file);
  in.seekg(std::max(begin, bytes_of(file) - kLogTailBytes));
  std::string last = "nothing in its log";
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) last = std::move(line);
  }
  return last;
}

}  // namespace

Supervisor::Supervisor(std::vector<ChildSpec> children, const Clock& clock) : clock_(clock) {
  for (ChildSpec& spec : children) children_.push_back(Child{.spec = std::move(spec)});
}

Supervisor::~Supervisor() {
  stop(0);
}

void Supervisor::start(Child& child) {
  std::vector<char*> argv;
  for (std::string& argument : child.spec.argv) argv.push_back(argument.data());
  argv.push_back(nullptr);
  child.log_begin = bytes_of(child.spec.log_file);
  const pid_t parent = getpid();
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);  // no handler of ours runs in the child
  const pid_t pid = fork();
  if (pid == 0) become(child.spec, argv.data(), parent);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  child.started_us = clock_.now_us();
  child.pid = std::max(pid, 0);
  if (pid < 0) child.start_at_us = clock_.now_us() + kBackoffMaxMs * 1000;
}

std::vector<std::string> Supervisor::poll() {
  std::vector<std::string> lines;
  for (Child& child : children_) {
    int status = 0;
    if (child.pid != 0 && waitpid(child.pid, &status, WNOHANG) == child.pid)
      lines.push_back(exited(child, status));
    if (child.pid == 0 && clock_.now_us() >= child.start_at_us) start(child);
  }
  return lines;
}

std::string Supervisor::exited(Child& child, int status) {
  const bool quick = clock_.now_us() - child.started_us < kQuickExitUs;
  child.quick_exits = quick ? child.quick_exits + 1 : 0;
  child.backoff_ms = quick && child.backoff_ms > 0 ? std::min(child.backoff_ms * 2, kBackoffMaxMs)
                                                   : kBackoffFirstMs;
  child.start_at_us = clock_.now_us() + child.backoff_ms * 1000;
  child.pid = 0;
  const std::string how = WIFSIGNALED(status)
                              ? "was killed by signal " + std::to_string(WTERMSIG(status))
                              : "exited with status " + std::to_string(WEXITSTATUS(status));
  const std::string why =
      last_line(child.spec.log_file, child.log_begin) + " (" + child.spec.log_file + ")";
  if (child.quick_exits >= kQuickExitsMax)
    hopeless_ = child.spec.name + " keeps failing at its start: " + why;
  return child.spec.name + " " + how + ", restarting in " + std::to_string(child.backoff_ms) +
         " ms: " + why;
}

void Supervisor::stop(int64_t drain_ms) {
  const int64_t deadline_us = clock_.now_us() + drain_ms * 1000;
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    if (child->pid != 0) kill(child->pid, SIGTERM);
    while (child->pid != 0 && clock_.now_us() < deadline_us) {
      if (waitpid(child->pid, nullptr, WNOHANG) != 0) {
        child->pid = 0;
      } else {
        sleep_ms(10);
      }
    }
  }
  for (Child& child : children_) {
    if (child.pid == 0) continue;
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    child.pid = 0;
  }
}

int32_t Supervisor::running() const {
  return static_cast<int32_t>(std::count_if(children_.begin(), children_.end(),
                                            [](const Child& child) { return child.pid != 0; }));
}

pid_t Supervisor::pid(const std::string& name) const {
  for (const Child& child : children_) {
    if (child.spec.name == name) return child.pid;
  }
  return 0;
}

}  // namespace baton
