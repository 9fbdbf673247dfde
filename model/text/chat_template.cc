#include "model/text/chat_template.h"

#include <nlohmann/json.hpp>

#include "model/text/jinja_evaluator.h"
#include "model/text/jinja_lexer.h"
#include "model/text/jinja_parser.h"
#include "model/text/jinja_repr.h"

namespace baton {

struct ChatTemplate::Program {
  TemplateLimits limits;
  jinja::Block block;
};

namespace {

// The template's variables; strings inside `messages` and `documents` are marked as the user's.
jinja::Value variables_of(jinja::RenderContext& context, const nlohmann::ordered_json& json) {
  if (!json.is_object()) throw jinja::RenderError("context: want a JSON object");
  jinja::DictBuilder variables(context);
  for (const auto& [name, value] : json.items()) {
    variables.set(
        jinja::make_text(context, name),
        jinja::value_from_json(context, value, name == "messages" || name == "documents"));
  }
  return variables.finish();
}

std::vector<TextSpan> spans_of(const jinja::MarkedText& text) {
  std::vector<TextSpan> spans;
  jinja::for_each_run(text, [&](std::string_view run, bool from_user) {
    spans.push_back({std::string(run), !from_user});
  });
  return spans;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, TemplateLimits limits) {
  try {
    program_ =
        std::make_unique<const Program>(Program{limits, jinja::parse_template(std::move(source))});
  } catch (const jinja::SyntaxError& error) {
    throw ConfigError(std::string("chat template, ") + error.what());
  }
}

ChatTemplate::~ChatTemplate() = default;

Result<std::vector<TextSpan>> ChatTemplate::render(const nlohmann::ordered_json& context,
                                                   int64_t now_unix_s) const {
  const TemplateLimits& limits = program_->limits;
  jinja::RenderContext render_context({.steps_max = limits.steps_max,
                                       .depth_max = limits.depth_max,
                                       .output_bytes_max = limits.output_bytes_max,
                                       .memory_bytes_max = limits.memory_bytes_max},
                                      now_unix_s);
  int line = 0;
  try {
    const jinja::Value variables = variables_of(render_context, context);
    jinja::Evaluator evaluator(render_context, *variables.dict());
    jinja::TextBuilder out(render_context);
    try {
      evaluator.run(program_->block, out);
    } catch (const jinja::RenderError&) {
      line = evaluator.line();
      throw;
    }
    return spans_of(out.take());
  } catch (const jinja::RenderError& error) {
    if (error.from_template()) return invalid_argument(error.what());
    return invalid_argument("chat template, line " + std::to_string(line) + ": " + error.what());
  }
}

std::string concatenate(const std::vector<TextSpan>& spans) {
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  return text;
}

}  // namespace baton
