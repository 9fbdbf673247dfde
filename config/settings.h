// The settings of a process: read from a JSON file and the command line, checked, printed. Called
// by the main functions; config.h holds the values, settings_worker.cc and settings_router.cc the
// names, units, ranges and help. Start-up only, one thread.
//
//   baton-worker --config worker.json --scheduler.step-tokens 512
//
// A file holds {"scheduler": {"step_tokens": 512}} or {"scheduler.step_tokens": 512}; flags go
// before the file, the file before the defaults. Unknown names and values out of range are a
// ConfigError with field, got and want.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/config.h"

namespace baton {

// One setting, bound to its place in a config struct that outlives it.
struct Setting {
  std::string name;         // "scheduler.step_tokens"; the flag is "--scheduler.step-tokens"
  std::string unit;         // "tokens", "ms", ...; may be empty
  double min = 0, max = 0;  // of a number, inclusive
  std::vector<std::string> choices;  // of a text; empty: any
  std::string help;
  std::string alias;  // a second, short flag without dashes; may be empty
  std::variant<int32_t*, int64_t*, double*, bool*, std::string*> value;
};

std::vector<Setting> settings_of(WorkerConfig& config);
std::vector<Setting> settings_of(RouterConfig& config);

// A flag that prints a text instead of running: "--metrics-markdown".
struct Page {
  std::string flag;
  std::string help;
  std::string (*text)();
};

// Sets what the arguments (without the program's name) and the file they name say. Gives the text
// to print instead of running, for --help, --print-config, --settings-markdown and the `pages`.
// Throws ConfigError.
std::optional<std::string> read_settings(const std::string& program,
                                         const std::vector<std::string>& arguments,
                                         const std::vector<Setting>& settings,
                                         const std::vector<Page>& pages = {});

// The whole of a main function's start: prints and exits for --help and its like. Throws
// ConfigError.
WorkerConfig parse_worker_config(int argc, char** argv, const std::vector<Page>& pages = {});
RouterConfig parse_router_config(int argc, char** argv, const std::vector<Page>& pages = {});

// JSON, nested, with every setting: a file for --config.
std::string settings_json(const std::vector<Setting>& settings);
// docs/settings.md, of both processes.
std::string settings_markdown();

}  // namespace baton
