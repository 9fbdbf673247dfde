#include "config/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/status.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFileDepthMax = 8;

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value == std::floor(value) ? "%.0f" : "%g", value);
  return text;
}

std::string range_text(const Setting& setting) {
  return number_text(setting.min) + " to " + number_text(setting.max);
}

std::string choices_text(const Setting& setting) {
  std::string text;
  for (const std::string& choice : setting.choices) text += (text.empty() ? "" : ", ") + choice;
  return text;
}

std::string want_text(const Setting& setting) {
  const std::string unit = setting.unit.empty() ? "" : " (" + setting.unit + ")";
  if (std::holds_alternative<bool*>(setting.value)) return "true or false";
  if (std::holds_alternative<double*>(setting.value))
    return "a number from " + range_text(setting) + unit;
  if (!std::holds_alternative<std::string*>(setting.value))
    return "an integer from " + range_text(setting) + unit;
  return setting.choices.empty() ? "a text" : "one of " + choices_text(setting);
}

[[noreturn]] void refuse(const Setting& setting, const std::string& got) {
  throw ConfigError(setting.name + ": got " + got + ", want " + want_text(setting));
}

// Sets an already typed value; `got` is how the user wrote it.
template <typename T>
void assign(const Setting& setting, T value, const std::string& got) {
  T& target = *std::get<T*>(setting.value);
  if constexpr (std::is_same_v<T, std::string>) {
    const auto& choices = setting.choices;
    // An empty text means "not set" wherever that is the default.
    if (!choices.empty() && !(value.empty() && target.empty()) &&
        std::find(choices.begin(), choices.end(), value) == choices.end())
      refuse(setting, got);
  } else if constexpr (!std::is_same_v<T, bool>) {
    const auto wide = static_cast<double>(value);
    if (!(wide >= setting.min && wide <= setting.max)) refuse(setting, got);
  }
  target = std::move(value);
}

void set_from_text(const Setting& setting, const std::string& text) {
  const std::string got = "\"" + text + "\"";
  const auto parse = [&]<typename T>(T* target) {
    if constexpr (std::is_same_v<T, std::string>) {
      assign<T>(setting, text, got);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (text != "true" && text != "false") refuse(setting, got);
      assign<T>(setting, text == "true", got);
    } else {
      T value = *target;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) refuse(setting, got);
      assign<T>(setting, value, got);
    }
  };
  std::visit(parse, setting.value);
}

void set_from_json(const Setting& setting, const Json& json) {
  const std::string got = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto parse = [&]<typename T>(T*) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) refuse(setting, got);
      assign<T>(setting, json.get<std::string>(), got);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) refuse(setting, got);
      assign<T>(setting, json.get<bool>(), got);
    } else {
      if (std::is_integral_v<T> ? !json.is_number_integer() : !json.is_number())
        refuse(setting, got);
      // As double first: a number beyond the type is also beyond the range.
      const auto wide = json.get<double>();
      if (!(wide >= setting.min && wide <= setting.max)) refuse(setting, got);
      assign<T>(setting, json.get<T>(), got);
    }
  };
  std::visit(parse, setting.value);
}

const Setting& find_setting(const std::vector<Setting>& settings, const std::string& name,
                            const std::string& path) {
  for (const Setting& setting : settings)
    if (setting.name == name) return setting;
  throw ConfigError(path + ": got \"" + name + "\", want a setting that --help lists");
}

void apply_json(const std::vector<Setting>& settings, const std::string& path,
                const std::string& prefix, const Json& object, int depth) {
  if (depth > kFileDepthMax) throw ConfigError(path + ": " + prefix + " is nested too deep");
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      apply_json(settings, path, name, value, depth + 1);
    } else {
      set_from_json(find_setting(settings, name, path), value);
    }
  }
}

void apply_file(const std::vector<Setting>& settings, const std::string& path) {
  std::ifstream file(path);
  if (!file) throw ConfigError("config: cannot read " + path);
  Json json;
  try {
    json = Json::parse(file, nullptr, true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& error) {
    throw ConfigError(path + ": not JSON, byte " + std::to_string(error.byte));
  }
  if (!json.is_object()) throw ConfigError(path + ": got no JSON object, want {...}");
  apply_json(settings, path, "", json, 0);
}

std::string flag_of(const Setting& setting) {
  std::string flag = "--" + setting.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

Json json_of(const Setting& setting) {
  return std::visit([](const auto* value) { return Json(*value); }, setting.value);
}

std::string help_of(const Setting& setting) {
  return setting.help + " " + want_text(setting) + "; default " + json_of(setting).dump();
}

template <typename Config>
Config parse_config(const std::string& program, int argc, char** argv,
                    const std::vector<Page>& pages) {
  Config config;
  const auto text = read_settings(program, std::vector<std::string>(argv + 1, argv + argc),
                                  settings_of(config), pages);
  if (text) {
    std::fputs(text->c_str(), stdout);
    std::exit(0);
  }
  if (config.model.empty())
    throw ConfigError("model: got none, want --model and a GGUF file or Hugging Face folder");
  return config;
}

template <typename Config>
std::string markdown_table() {
  Config config;
  std::string text =
      "| setting | flag | unit | values | default | meaning |\n|---|---|---|---|---|---|\n";
  for (const Setting& setting : settings_of(config)) {
    std::string values = choices_text(setting);
    if (std::holds_alternative<bool*>(setting.value)) values = "true, false";
    if (values.empty() && !std::holds_alternative<std::string*>(setting.value))
      values = range_text(setting);
    std::string flags = "`" + flag_of(setting) + "`";
    if (!setting.alias.empty()) flags += ", `--" + setting.alias + "`";
    text += "| `" + setting.name + "` | " + flags + " | " + setting.unit + " | " + values + " | `" +
            json_of(setting).dump() + "` | " + setting.help + " |\n";
  }
  return text;
}

}  // namespace

std::optional<std::string> read_settings(const std::string& program,
                                         const std::vector<std::string>& arguments,
                                         const std::vector<Setting>& settings,
                                         const std::vector<Page>& pages) {
  CLI::App app("", program);
  std::string config_file;
  bool print_config = false;
  bool print_markdown = false;
  app.add_option("--config", config_file, "JSON file of settings; flags go before it.");
  app.add_flag("--print-config", print_config, "Print all settings as such a file and end.");
  app.add_flag("--settings-markdown", print_markdown, "Print the page of all settings and end.");
  std::vector<CLI::Option*> page_flags;
  for (const Page& page : pages) page_flags.push_back(app.add_flag(page.flag, page.help));
  std::vector<std::string> texts(settings.size());
  std::vector<CLI::Option*> options;
  for (size_t i = 0; i < settings.size(); ++i) {
    std::string flags = flag_of(settings[i]);
    if (!settings[i].alias.empty()) flags += ",--" + settings[i].alias;
    options.push_back(app.add_option(flags, texts[i], help_of(settings[i])));
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string(error.what()) + "; --help lists the flags");
  }
  if (!config_file.empty()) apply_file(settings, config_file);
  for (size_t i = 0; i < settings.size(); ++i)
    if (options[i]->count() > 0) set_from_text(settings[i], texts[i]);
  for (size_t i = 0; i < pages.size(); ++i)
    if (page_flags[i]->count() > 0) return pages[i].text();
  if (print_markdown) return settings_markdown();
  if (print_config) return settings_json(settings);
  return std::nullopt;
}

namespace {

// A step has to be long enough that its matrix products keep the device busy: on an H200 a prompt
// of 8192 tokens takes 290 ms in steps of 256, 205 ms in one. Beside decodes it has to be short.
void fill_scheduler_defaults(WorkerConfig& config) {
  const bool gpu = config.device != "cpu";
  SchedulerConfig& scheduler = config.scheduler;
  if (scheduler.step_tokens == 0) scheduler.step_tokens = gpu ? 8192 : 512;
  if (scheduler.chunk_tokens == 0) scheduler.chunk_tokens = gpu ? scheduler.step_tokens : 256;
  if (scheduler.mixed_tokens == 0 && gpu) scheduler.mixed_tokens = 256;
}

// Three threads of a worker may poll: they must not keep those that they wait for from a processor.
constexpr unsigned kLingerProcessorsMin = 8;

}  // namespace

WorkerConfig parse_worker_config(int argc, char** argv, const std::vector<Page>& pages) {
  auto config = parse_config<WorkerConfig>("baton-worker", argc, argv, pages);
  if (config.worker_id.empty()) config.worker_id = config.listen;
  fill_scheduler_defaults(config);
  if (config.loop_linger_us < 0) {
    const bool room = std::thread::hardware_concurrency() >= kLingerProcessorsMin;
    config.loop_linger_us = config.device != "cpu" && room ? 1000 : 0;
  }
  // A chunk's end, which a GPU's bits depend on, must not depend on how fast the last ones were.
  if (config.deterministic && config.device != "cpu") config.scheduler.chunk_ms = 0;
  return config;
}

RouterConfig parse_router_config(int argc, char** argv, const std::vector<Page>& pages) {
  return parse_config<RouterConfig>("baton-router", argc, argv, pages);
}

std::string settings_json(const std::vector<Setting>& settings) {
  Json json = Json::object();
  for (const Setting& setting : settings) {
    const size_t dot = setting.name.find('.');
    if (dot == std::string::npos) {
      json[setting.name] = json_of(setting);
    } else {
      json[setting.name.substr(0, dot)][setting.name.substr(dot + 1)] = json_of(setting);
    }
  }
  return json.dump(2) + "\n";
}

std::string settings_markdown() {
  return "# Settings\n\nMade by `baton-worker --settings-markdown`; the tables are "
         "`config/settings_*.cc`. A file for `--config` holds the same names, nested or with "
         "dots; flags go before the file.\n\n## baton-worker\n\n" +
         markdown_table<WorkerConfig>() + "\n## baton-router\n\n" + markdown_table<RouterConfig>();
}

}  // namespace baton
