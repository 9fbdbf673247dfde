// baton-router --model PATH --workers HOST:PORT,... --http.port 8000
#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "base/log.h"
#include "config/settings.h"
#include "router/descriptor_limit.h"
#include "router/metric_table.h"
#include "router/router.h"

namespace {

// SIGTERM and SIGINT are taken by a thread of their own; all other threads inherit the mask.
sigset_t block_stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

// The first signal drains, the second one ends the process at once.
void watch_signals(const std::stop_token& token, const sigset_t& signals, baton::Router& router) {
  const timespec tick{.tv_sec = 0, .tv_nsec = 200'000'000};
  bool draining = false;
  while (!token.stop_requested()) {
    if (sigtimedwait(&signals, nullptr, &tick) <= 0) continue;
    if (draining) {
      router.stop();
    } else {
      router.drain();
    }
    draining = true;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t stop_signals = block_stop_signals();
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const baton::RouterConfig config = baton::parse_router_config(
        argc, argv,
        {{"--metrics-markdown", "Print the page of the router's metrics and end.",
          baton::router_metrics_markdown}});
    baton::raise_descriptor_limit(config.http.connections_max + config.link.connections_max);
    baton::Router router(config, baton::load_text_model(config.model, config.chat_template_file));
    std::jthread signals(
        [&](const std::stop_token& token) { watch_signals(token, stop_signals, router); });
    router.run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "baton-router: %s\n", error.what());
    return 2;
  }
}
