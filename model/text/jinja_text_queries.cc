// Methods of str that answer with a number or a bool.
#include <utf8proc.h>

#include <algorithm>

#include "model/text/jinja_methods.h"
#include "model/text/jinja_string_tools.h"

namespace baton::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

// The part of the text that start and end (in code points) leave, and where it begins.
struct Window {
  std::string_view bytes;
  size_t begin = 0;  // byte offset
};

Window window_of(const Call& call, const Value* start, const Value* end) {
  const std::string_view bytes = call.self.text()->text.bytes;
  call.context.work(static_cast<int64_t>(bytes.size()));
  if (!is_given(start) && !is_given(end)) return {bytes, 0};
  const auto count = static_cast<Integer>(code_point_count(bytes));
  const auto clamp = [&](const Value* value, Integer fallback) {
    Integer index = is_given(value) ? integer_argument(call, value, 0) : fallback;
    if (index < 0) index += count;
    return code_point_offset(bytes, static_cast<size_t>(std::clamp<Integer>(index, 0, count)));
  };
  const size_t from = clamp(start, 0), to = std::max(from, clamp(end, count));
  return {bytes.substr(from, to - from), from};
}

Integer find_in(Call& call, bool from_right) {
  const auto bound = call.bind({"sub", "start", "end"});
  const std::string& needle = text_argument(call, bound[0]).bytes;
  const Window window = window_of(call, bound[1], bound[2]);
  const size_t hit = from_right ? window.bytes.rfind(needle) : find_bytes(window.bytes, needle);
  if (hit == npos) return -1;
  const std::string_view all = call.self.text()->text.bytes;
  return static_cast<Integer>(code_point_count(all.substr(0, window.begin + hit)));
}
Value text_find(Call& call) {
  return find_in(call, false);
}
Value text_rfind(Call& call) {
  return find_in(call, true);
}

Value found_index(Integer index) {
  if (index < 0) throw RenderError("substring not found");
  return index;
}
Value text_index(Call& call) {
  return found_index(find_in(call, false));
}
Value text_rindex(Call& call) {
  return found_index(find_in(call, true));
}

Value text_count(Call& call) {
  const auto bound = call.bind({"sub", "start", "end"});
  const std::string& needle = text_argument(call, bound[0]).bytes;
  const Window window = window_of(call, bound[1], bound[2]);
  if (needle.empty()) return Value(code_point_count(window.bytes) + 1);
  int64_t count = 0;
  for (size_t at = find_bytes(window.bytes, needle); at != npos;
       at = find_bytes(window.bytes, needle, at + needle.size())) {
    ++count;
  }
  return Value(count);
}

// One text or a tuple of them.
Value has_affix(Call& call, bool at_start) {
  const auto bound = call.bind({"prefix", "start", "end"});
  const Window window = window_of(call, bound[1], bound[2]);
  const auto matches = [&](const Value& affix) {
    const std::string& bytes = text_argument(call, &affix).bytes;
    return at_start ? window.bytes.starts_with(bytes) : window.bytes.ends_with(bytes);
  };
  const Sequence* several = bound[0] ? bound[0]->sequence() : nullptr;
  if (several && several->kind == SequenceKind::kTuple) {
    return std::any_of(several->items.begin(), several->items.end(), matches);
  }
  text_argument(call, bound[0]);
  return matches(*bound[0]);
}
Value text_startswith(Call& call) {
  return has_affix(call, true);
}
Value text_endswith(Call& call) {
  return has_affix(call, false);
}

// True where all code points satisfy `test` and there is one.
bool all_of_text(Call& call, bool (*test)(int32_t)) {
  call.bind({});
  const std::string_view bytes = call.self.text()->text.bytes;
  call.context.work(static_cast<int64_t>(bytes.size()));
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    if (!test(c.value)) return false;
    at += c.size;
  }
  return !bytes.empty();
}

bool is_letter(int32_t c) {
  const auto category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(int32_t c) {
  return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_numeric(int32_t c) {
  const auto category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
Value text_isalpha(Call& call) {
  return all_of_text(call, is_letter);
}
Value text_isdigit(Call& call) {
  return all_of_text(call, is_decimal);
}
Value text_isnumeric(Call& call) {
  return all_of_text(call, is_numeric);
}
Value text_isalnum(Call& call) {
  return all_of_text(call, [](int32_t c) { return is_letter(c) || is_numeric(c); });
}
Value text_isspace(Call& call) {
  return all_of_text(call, is_python_space);
}
Value text_isascii(Call& call) {
  return call.self.text()->text.bytes.empty() ||
         all_of_text(call, [](int32_t c) { return c < 0x80; });
}

Value is_case(Call& call, std::string (*convert)(int32_t)) {
  call.bind({});
  const std::string_view bytes = call.self.text()->text.bytes;
  call.context.work(static_cast<int64_t>(bytes.size()));
  bool has_cased = false;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    if (convert(c.value) != bytes.substr(at, c.size)) return false;
    has_cased = has_cased || is_cased(c.value);
    at += c.size;
  }
  return has_cased;
}
Value text_isupper(Call& call) {
  return is_case(call, to_upper);
}
Value text_islower(Call& call) {
  return is_case(call, to_lower);
}

}  // namespace

NativeFunction find_text_query(std::string_view name) {
  struct Entry {
    std::string_view name;
    NativeFunction function;
  };
  static constexpr Entry kQueries[] = {
      {"find", text_find},         {"rfind", text_rfind},         {"index", text_index},
      {"rindex", text_rindex},     {"count", text_count},         {"startswith", text_startswith},
      {"endswith", text_endswith}, {"isalpha", text_isalpha},     {"isdigit", text_isdigit},
      {"isdecimal", text_isdigit}, {"isnumeric", text_isnumeric}, {"isalnum", text_isalnum},
      {"isspace", text_isspace},   {"isascii", text_isascii},     {"isupper", text_isupper},
      {"islower", text_islower},
  };
  for (const Entry& entry : kQueries) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace baton::jinja
