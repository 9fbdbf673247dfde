#include "model/text/jinja_text.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>

namespace baton::jinja {

void MarkedText::append(std::string_view piece, bool from_user) {
  if (piece.empty()) return;
  const size_t begin = bytes.size();
  bytes.append(piece);
  if (!from_user) return;
  if (!user.empty() && user.back().end == begin) {
    user.back().end = bytes.size();
  } else {
    user.push_back({begin, bytes.size()});
  }
}

void MarkedText::append(const MarkedText& other, size_t begin, size_t end) {
  const std::string_view source = other.bytes;
  auto range = std::lower_bound(other.user.begin(), other.user.end(), begin,
                                [](const ByteRange& r, size_t at) { return r.end <= at; });
  size_t at = begin;
  for (; range != other.user.end() && range->begin < end; ++range) {
    const size_t from = std::max(range->begin, at), to = std::min(range->end, end);
    append(source.substr(at, from - at), false);
    append(source.substr(from, to - from), true);
    at = to;
  }
  if (at < end) append(source.substr(at, end - at), false);
}

MarkedText MarkedText::slice(size_t begin, size_t end) const {
  MarkedText out;
  if (begin < end) out.append(*this, begin, end);
  return out;
}

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
  if (data[0] < 0x80) return {data[0], 1};
  utf8proc_int32_t value = 0;
  const auto size = utf8proc_iterate(data, static_cast<utf8proc_ssize_t>(text.size() - at), &value);
  if (size <= 0) return {data[0], 1};
  return {value, static_cast<size_t>(size)};
}

void append_code_point(std::string& out, int32_t code_point) {
  utf8proc_uint8_t buffer[4];
  const auto size = utf8proc_encode_char(code_point, buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(size));
}

size_t code_point_count(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += code_point_at(text, at).size) ++count;
  return count;
}

size_t code_point_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += code_point_at(text, at).size;
  return at;
}

bool is_python_space(int32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_line_break(int32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_python_space(c.value)) break;
    at += c.size;
  }
  return at;
}

size_t skip_space_back(std::string_view text, size_t end) {
  end = std::min(end, text.size());
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (text[begin] & 0xc0) == 0x80) --begin;
    const CodePoint c = code_point_at(text.substr(0, end), begin);
    if (c.size != end - begin || !is_python_space(c.value)) break;
    end = begin;
  }
  return end;
}

size_t find_bytes(std::string_view haystack, std::string_view needle, size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* hit =
      memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  if (!hit) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(hit) - haystack.data());
}

}  // namespace baton::jinja
