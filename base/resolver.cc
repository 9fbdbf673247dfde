#include "base/resolver.h"

namespace baton {
namespace {

constexpr size_t kQuestionsMax = 1024;

Result<std::vector<SocketAddress>> look_up(const std::string& address) {
  const Result<HostPort> target = parse_host_port(address);
  if (!target.ok()) return target.status();
  return resolve(*target, /*numeric_only=*/false);
}

}  // namespace

Resolver::Resolver(Answer answer)
    : answer_(std::move(answer)), questions_(kQuestionsMax), thread_([this] { run(); }) {}

Resolver::~Resolver() {
  questions_.close();
  thread_.join();
}

bool Resolver::ask(std::string address) {
  return questions_.try_push(std::move(address));
}

void Resolver::run() {
  while (const auto address = questions_.pop()) {
    if (questions_.closed()) return;
    answer_(*address, look_up(*address));
  }
}

}  // namespace baton
