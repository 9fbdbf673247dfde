// `baton`: the command for people.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/status.h"
#include "cli/bench.h"
#include "cli/generate.h"
#include "cli/tokenize.h"
#include "cli/up.h"

int main(int argc, char** argv) {
  CLI::App app("Baton, a prefill/decode inference server for large language models", "baton");
  app.require_subcommand(1);
  baton::add_up_command(app);
  baton::add_generate_command(app);
  baton::add_tokenize_command(app);
  baton::add_bench_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const baton::ConfigError& error) {
    std::fprintf(stderr, "baton: %s\n", error.what());
    return 1;
  }
  return 0;
}
