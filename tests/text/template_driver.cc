// For template_equivalence.py: reads lines {"template", "context", "now"}, answers each with a line
// {"text", "user"} or {"error"}. "user" is the text that must not form control tokens: the spans
// with parse_special = false.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/text/chat_template.h"

namespace {

nlohmann::ordered_json answer(const nlohmann::ordered_json& request) {
  try {
    const baton::ChatTemplate chat_template(request.at("template").get<std::string>());
    const auto spans =
        chat_template.render(request.at("context"), request.at("now").get<int64_t>());
    if (!spans.ok()) return {{"error", spans.status().message()}};
    auto user = nlohmann::ordered_json::array();
    for (const baton::TextSpan& span : *spans) {
      if (!span.parse_special) user.push_back(span.text);
    }
    return {{"text", baton::concatenate(*spans)}, {"user", user}};
  } catch (const baton::ConfigError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(nlohmann::ordered_json::parse(line)).dump() << std::endl;
  }
  return 0;
}
