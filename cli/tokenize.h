// `baton tokenize`: text to ids and back with a model's tokeniser. Main thread only.
#pragma once

namespace CLI {
class App;
}

namespace baton {

// Adds the subcommand; its callback throws ConfigError.
void add_tokenize_command(CLI::App& app);

}  // namespace baton
