// String work that methods and filters share. Indices and widths count code points, as Python's do.
#pragma once

#include <string>
#include <vector>

#include "model/text/jinja_value.h"

namespace baton::jinja {

std::string to_upper(int32_t code_point);
std::string to_lower(int32_t code_point);
bool is_cased(int32_t code_point);

// Writes convert(code point) for every code point; marks stay where they were.
template <typename Convert>
void append_converted(TextBuilder& out, const MarkedText& text, Convert convert) {
  for_each_run(text, [&](std::string_view run, bool from_user) {
    for (size_t at = 0; at < run.size();) {
      const CodePoint c = code_point_at(run, at);
      out.append(convert(c.value), from_user);
      at += c.size;
    }
  });
}

// Without leading and trailing `characters` (code points of that text; blanks when null).
MarkedText strip(const MarkedText& text, const MarkedText* characters, bool left, bool right);

// count_max < 0: all of them.
Value replace_all(RenderContext& context, const MarkedText& text, const MarkedText& from,
                  const MarkedText& to, Integer count_max);
Value capitalize(RenderContext& context, const MarkedText& text);
std::vector<ByteRange> split_lines(std::string_view text, bool keep_ends);
void append_padding(TextBuilder& out, const MarkedText& fill, Integer count);
Value center(RenderContext& context, const MarkedText& text, Integer width, const MarkedText& fill);

}  // namespace baton::jinja
