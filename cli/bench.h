// `baton bench`: an open-loop (Poisson) or closed-loop load generator for any OpenAI-compatible
// server.
#pragma once

namespace CLI {
class App;
}

namespace baton {

// Adds the subcommand to `app`; it runs as the app's callback. Throws ConfigError.
void add_bench_command(CLI::App& app);

}  // namespace baton
