// A model's chat template (Jinja as Hugging Face transformers runs it), rendered in a sandbox of
// our own: no files, no Python, bounded steps, depth and output. Syntax and semantics follow
// jinja2 3.x in transformers' settings (research: trim_blocks, lstrip_blocks, loopcontrols, tojson
// without HTML escapes, immutable sandbox).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/text/tokenizer.h"

namespace baton {

struct TemplateLimits {
  int64_t steps_max =
      5'000'000;  // expressions, statements, rounds of loops; 64 bytes of text work count as one
  int32_t depth_max = 1000;  // nested blocks, expressions and macro calls together; also of a value
  int64_t output_bytes_max = 16 << 20;
  int64_t memory_bytes_max = 256 << 20;  // of the values alive at one time
};

// Immutable after construction; render is thread-safe.
class ChatTemplate {
 public:
  // Throws ConfigError with line and reason when the source does not parse.
  explicit ChatTemplate(std::string source, TemplateLimits limits = {});
  ~ChatTemplate();

  // `context`: messages, tools, add_generation_prompt, bos_token, eos_token and
  // chat_template_kwargs as one JSON object (ordered_json: tojson keeps the order of keys).
  // `now_unix_s` feeds strftime_now (UTC). Text that came from string values inside `messages` or
  // `documents` is returned in spans with parse_special = false, so that user text never becomes a
  // control token; everything else (template text, bos_token, ...) with parse_special = true.
  // Errors: INVALID_ARGUMENT with the template's own message for raise_exception; a limit, named; a
  // type error with its line.
  Result<std::vector<TextSpan>> render(const nlohmann::ordered_json& context,
                                       int64_t now_unix_s) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

std::string concatenate(const std::vector<TextSpan>& spans);

}  // namespace baton
