// Text that remembers which of its bytes a user wrote. All string work of the template engine goes
// through it, so the marks survive trim, split, replace, concatenation and so on. Used by the
// jinja_* files only; plain values, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton::jinja {

struct ByteRange {
  size_t begin = 0, end = 0;  // half open
};

struct MarkedText {
  std::string bytes;            // UTF-8
  std::vector<ByteRange> user;  // what the user wrote: sorted, disjoint, not empty, never touching

  void append(std::string_view piece, bool from_user);
  void append(const MarkedText& other) { append(other, 0, other.bytes.size()); }
  void append(const MarkedText& other, size_t begin,
              size_t end);  // other.bytes[begin, end) with its marks
  MarkedText slice(size_t begin, size_t end) const;
};

// Calls visit(std::string_view piece, bool from_user) for the longest pieces that are all the
// user's or all not.
template <typename Visit>
void for_each_run(const MarkedText& text, Visit visit) {
  const std::string_view bytes = text.bytes;
  size_t at = 0;
  for (const ByteRange& range : text.user) {
    if (range.begin > at) visit(bytes.substr(at, range.begin - at), false);
    visit(bytes.substr(range.begin, range.end - range.begin), true);
    at = range.end;
  }
  if (at < bytes.size()) visit(bytes.substr(at), false);
}

// One code point of UTF-8. A byte that starts no valid sequence stands for itself (size 1).
struct CodePoint {
  int32_t value = 0;
  size_t size = 0;
};
CodePoint code_point_at(std::string_view text, size_t at);
void append_code_point(std::string& out, int32_t code_point);

size_t code_point_count(std::string_view text);
// Byte offset of the code point with this index; text.size() past the end.
size_t code_point_offset(std::string_view text, size_t index);

bool is_python_space(int32_t code_point);  // str.isspace()
bool is_line_break(int32_t code_point);    // where str.splitlines() breaks
size_t skip_space(std::string_view text,
                  size_t at);  // first byte at or after `at` that is no space
size_t skip_space_back(std::string_view text,
                       size_t end = std::string_view::npos);  // end without its trailing spaces

// First place of `needle` at or after `from`; npos if none. Linear in the worst case, unlike
// string_view::find.
size_t find_bytes(std::string_view haystack, std::string_view needle, size_t from = 0);

}  // namespace baton::jinja
