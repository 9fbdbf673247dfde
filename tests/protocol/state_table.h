// The tables of docs/protocol.md as a test reads them: a row an event, a column a state, a cell
// what happens. The page is what the code is checked against, so neither can change alone.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace baton {

struct StateTable {
  std::vector<std::string> states;
  std::vector<std::string> events;
  std::map<std::pair<std::string, std::string>, std::string> cells;  // (state, event)
};

inline std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" `");
  const auto end = text.find_last_not_of(" `");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

inline std::vector<std::string> table_row(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

// The first table below the heading. Throws when there is none.
inline StateTable read_state_table(const std::string& heading) {
  const std::string path = std::string(BATON_SOURCE_DIR) + "/docs/protocol.md";
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line) && line != heading) {
  }
  while (std::getline(in, line) && !line.starts_with("|")) {
  }
  if (!in) throw std::runtime_error(path + ": no table below \"" + heading + "\"");
  StateTable table;
  table.states = table_row(line);
  table.states.erase(table.states.begin());
  std::getline(in, line);  // the rule below the names
  while (std::getline(in, line) && line.starts_with("|")) {
    const std::vector<std::string> cells = table_row(line);
    table.events.push_back(cells.at(0));
    for (size_t i = 0; i + 1 < cells.size(); ++i)
      table.cells[{table.states.at(i), cells[0]}] = cells[i + 1];
  }
  return table;
}

}  // namespace baton
