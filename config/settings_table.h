// How the tables of settings are written: settings_worker.cc and settings_router.cc. A new setting
// gets its default in config.h and a row in its table.
#pragma once

#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "config/settings.h"

namespace baton {

struct Range {
  double min = 0, max = 0;
  const char* choices = "";  // separated by blanks
};

template <typename S>
struct Row {
  const char* name;
  std::variant<int32_t S::*, int64_t S::*, double S::*, bool S::*, std::string S::*> member;
  const char* unit;
  Range range;
  const char* help;
  const char* alias = "";
};

inline constexpr double kMiB = 1 << 20;
inline constexpr Range kAny = {};
inline constexpr Range kShare = {0, 1};
inline constexpr Range kWaitMs = {1, 3'600'000};

using SettingTable = std::vector<Setting>;

template <typename S>
void add(SettingTable& table, const std::string& section, S& values,
         const std::vector<Row<S>>& rows) {
  for (const Row<S>& row : rows) {
    Setting setting{.name = section.empty() ? row.name : section + "." + row.name,
                    .unit = row.unit,
                    .min = row.range.min,
                    .max = row.range.max,
                    .help = row.help,
                    .alias = row.alias};
    std::istringstream choices(row.range.choices);
    for (std::string choice; choices >> choice;) setting.choices.push_back(choice);
    std::visit([&](auto member) { setting.value = &(values.*member); }, row.member);
    table.push_back(std::move(setting));
  }
}

inline constexpr const char* kAliasesHelp =
    "Tell series also under the names that vLLM gives them, for dashboards and autoscalers.";

// What both processes have; in settings_link.cc.
void add_link(SettingTable& table, LinkConfig& values);

}  // namespace baton
