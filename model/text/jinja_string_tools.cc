#include "model/text/jinja_string_tools.h"

#include <utf8proc.h>

namespace baton::jinja {
namespace {

std::string encoded(int32_t code_point) {
  std::string out;
  append_code_point(out, code_point);
  return out;
}

bool contains_code_point(const MarkedText& set, int32_t wanted) {
  for (size_t at = 0; at < set.bytes.size();) {
    const CodePoint c = code_point_at(set.bytes, at);
    if (c.value == wanted) return true;
    at += c.size;
  }
  return false;
}

}  // namespace

std::string to_upper(int32_t c) {
  if (c == 0xdf) return "SS";  // the one special casing that is common in text
  return encoded(utf8proc_toupper(c));
}

std::string to_lower(int32_t c) {
  return encoded(utf8proc_tolower(c));
}

bool is_cased(int32_t c) {
  return utf8proc_toupper(c) != c || utf8proc_tolower(c) != c || c == 0xdf;
}

MarkedText strip(const MarkedText& text, const MarkedText* characters, bool left, bool right) {
  const std::string_view bytes = text.bytes;
  if (!characters) {
    const size_t begin = left ? skip_space(bytes, 0) : 0;
    return text.slice(begin, right ? skip_space_back(bytes) : bytes.size());
  }
  size_t begin = 0, end = 0;
  bool at_start = left;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const bool is_stripped = contains_code_point(*characters, c.value);
    at += c.size;
    if (is_stripped && at_start) begin = at;
    if (!is_stripped) {
      at_start = false;
      end = at;
    }
  }
  return text.slice(begin, right ? end : bytes.size());
}

Value replace_all(RenderContext& context, const MarkedText& text, const MarkedText& from,
                  const MarkedText& to, Integer count_max) {
  TextBuilder out(context);
  const std::string_view bytes = text.bytes;
  context.work(static_cast<int64_t>(bytes.size()));
  size_t at = 0;
  for (Integer count = 0; count_max < 0 || count < count_max; ++count) {
    // An empty `from` stands between all code points and at both ends.
    size_t hit = find_bytes(bytes, from.bytes, at);
    if (from.bytes.empty() && count > 0) {
      hit = at < bytes.size() ? at + code_point_at(bytes, at).size : std::string_view::npos;
    }
    if (hit == std::string_view::npos) break;
    out.append(text, at, hit);
    out.append(to);
    at = hit + from.bytes.size();
  }
  out.append(text, at, bytes.size());
  return out.finish();
}

Value capitalize(RenderContext& context, const MarkedText& text) {
  TextBuilder out(context);
  bool is_first = true;
  append_converted(out, text, [&](int32_t c) {
    return std::exchange(is_first, false) ? encoded(utf8proc_totitle(c)) : to_lower(c);
  });
  return out.finish();
}

std::vector<ByteRange> split_lines(std::string_view text, bool keep_ends) {
  std::vector<ByteRange> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const size_t end = at;
    at += c.size;
    if (!is_line_break(c.value)) continue;
    if (c.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back({begin, keep_ends ? at : end});
    begin = at;
  }
  if (begin < text.size()) lines.push_back({begin, text.size()});
  return lines;
}

void append_padding(TextBuilder& out, const MarkedText& fill, Integer count) {
  for (Integer i = 0; i < count; ++i) out.append(fill);
}

Value center(RenderContext& context, const MarkedText& text, Integer width,
             const MarkedText& fill) {
  const Integer missing = width - static_cast<Integer>(code_point_count(text.bytes));
  TextBuilder out(context);
  const Integer left = missing > 0 ? missing / 2 + (missing & width & 1) : 0;
  append_padding(out, fill, left);
  out.append(text);
  append_padding(out, fill, missing - left);
  return out.finish();
}

}  // namespace baton::jinja
