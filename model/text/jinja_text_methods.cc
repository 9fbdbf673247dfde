// Methods of str that give text.
#include <algorithm>

#include "model/text/jinja_format.h"
#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_string_tools.h"

namespace baton::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

const MarkedText& self_text(const Call& call) {
  return call.self.text()->text;
}

Value list_of_pieces(Call& call, const std::vector<ByteRange>& pieces) {
  std::vector<Value> items;
  for (const ByteRange& piece : pieces) {
    items.push_back(make_text(call.context, self_text(call).slice(piece.begin, piece.end)));
  }
  return make_sequence(call.context, SequenceKind::kList, std::move(items));
}

Value strip_sides(Call& call, bool left, bool right) {
  const auto bound = call.bind({"chars"});
  const MarkedText* characters = is_given(bound[0]) ? &text_argument(call, bound[0]) : nullptr;
  return make_text(call.context, strip(self_text(call), characters, left, right),
                   call.self.text()->is_markup);
}
Value text_strip(Call& call) {
  return strip_sides(call, true, true);
}
Value text_lstrip(Call& call) {
  return strip_sides(call, true, false);
}
Value text_rstrip(Call& call) {
  return strip_sides(call, false, true);
}

std::vector<ByteRange> split_at_blanks(std::string_view text, Integer count_max) {
  std::vector<ByteRange> pieces;
  size_t at = skip_space(text, 0);
  while (at < text.size()) {
    size_t end = at;
    if (count_max >= 0 && static_cast<Integer>(pieces.size()) >= count_max) {
      end = text.size();
    } else {
      while (end < text.size() && !is_python_space(code_point_at(text, end).value)) {
        end += code_point_at(text, end).size;
      }
    }
    pieces.push_back({at, end});
    at = skip_space(text, end);
  }
  return pieces;
}

std::vector<ByteRange> split_at_blanks_from_right(std::string_view text, Integer count_max) {
  std::vector<ByteRange> pieces;
  size_t end = skip_space_back(text);
  while (end > 0) {
    size_t begin = end;
    if (count_max >= 0 && static_cast<Integer>(pieces.size()) >= count_max) {
      begin = 0;
    } else {
      while (begin > 0 && skip_space_back(text, begin) == begin) --begin;
    }
    pieces.push_back({begin, end});
    end = skip_space_back(text, begin);
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<ByteRange> split_at(std::string_view text, std::string_view separator,
                                Integer count_max) {
  std::vector<ByteRange> pieces;
  size_t at = 0;
  while (count_max < 0 || static_cast<Integer>(pieces.size()) < count_max) {
    const size_t hit = find_bytes(text, separator, at);
    if (hit == npos) break;
    pieces.push_back({at, hit});
    at = hit + separator.size();
  }
  pieces.push_back({at, text.size()});
  return pieces;
}

std::vector<ByteRange> split_at_from_right(std::string_view text, std::string_view separator,
                                           Integer count_max) {
  std::vector<ByteRange> pieces;
  size_t end = text.size();
  while (count_max < 0 || static_cast<Integer>(pieces.size()) < count_max) {
    const size_t hit = text.substr(0, end).rfind(separator);
    if (hit == npos) break;
    pieces.push_back({hit + separator.size(), end});
    end = hit;
  }
  pieces.push_back({0, end});
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

Value split_text(Call& call, bool from_right) {
  const auto bound = call.bind({"sep", "maxsplit"});
  const std::string_view text = self_text(call).bytes;
  const Integer count_max = integer_argument(call, bound[1], -1);
  call.context.work(static_cast<int64_t>(text.size()));
  if (!is_given(bound[0])) {
    return list_of_pieces(call, from_right ? split_at_blanks_from_right(text, count_max)
                                           : split_at_blanks(text, count_max));
  }
  const std::string_view separator = text_argument(call, bound[0]).bytes;
  if (separator.empty()) throw RenderError("empty separator");
  return list_of_pieces(call, from_right ? split_at_from_right(text, separator, count_max)
                                         : split_at(text, separator, count_max));
}
Value text_split(Call& call) {
  return split_text(call, false);
}
Value text_rsplit(Call& call) {
  return split_text(call, true);
}

Value text_splitlines(Call& call) {
  const auto bound = call.bind({"keepends"});
  return list_of_pieces(call, split_lines(self_text(call).bytes, bound[0] && is_true(*bound[0])));
}

Value partition(Call& call, bool from_right) {
  const auto bound = call.bind({"sep"});
  const MarkedText &text = self_text(call), &separator = text_argument(call, bound[0]);
  if (separator.bytes.empty()) throw RenderError("empty separator");
  const size_t hit =
      from_right ? text.bytes.rfind(separator.bytes) : find_bytes(text.bytes, separator.bytes);
  MarkedText before = text, middle, after;
  if (hit != npos) {
    before = text.slice(0, hit);
    middle = separator;
    after = text.slice(hit + separator.bytes.size(), text.bytes.size());
  } else if (from_right) {
    std::swap(before, after);
  }
  std::vector<Value> parts;
  for (MarkedText* part : {&before, &middle, &after}) {
    parts.push_back(make_text(call.context, std::move(*part)));
  }
  return make_sequence(call.context, SequenceKind::kTuple, std::move(parts));
}
Value text_partition(Call& call) {
  return partition(call, false);
}
Value text_rpartition(Call& call) {
  return partition(call, true);
}

Value convert(Call& call, std::string (*change)(int32_t)) {
  call.bind({});
  TextBuilder out(call.context);
  append_converted(out, self_text(call), change);
  return out.finish(call.self.text()->is_markup);
}
Value text_upper(Call& call) {
  return convert(call, to_upper);
}
Value text_lower(Call& call) {
  return convert(call, to_lower);
}
Value text_swapcase(Call& call) {
  return convert(call, [](int32_t c) {
    const std::string upper = to_upper(c);
    return code_point_at(upper, 0).value == c ? to_lower(c) : upper;
  });
}

Value text_title(Call& call) {
  call.bind({});
  TextBuilder out(call.context);
  bool in_word = false;
  append_converted(out, self_text(call), [&](int32_t c) {
    const bool is_first = !std::exchange(in_word, is_cased(c));
    return is_first ? to_upper(c) : to_lower(c);
  });
  return out.finish();
}

Value text_capitalize(Call& call) {
  call.bind({});
  return capitalize(call.context, self_text(call));
}

Value text_replace(Call& call) {
  const auto bound = call.bind({"old", "new", "count"});
  return replace_all(call.context, self_text(call), text_argument(call, bound[0]),
                     text_argument(call, bound[1]), integer_argument(call, bound[2], -1));
}

Value text_join(Call& call) {
  const auto bound = call.bind({"iterable"});
  if (!bound[0]) throw RenderError("join() takes exactly one argument (0 given)");
  TextBuilder out(call.context);
  const SequencePtr pieces = iterate(call.context, *bound[0]);
  for (size_t i = 0; i < pieces->items.size(); ++i) {
    if (i > 0) out.append(self_text(call));
    const Text* piece = pieces->items[i].text();
    if (!piece) {
      throw RenderError("sequence item " + std::to_string(i) + ": expected str instance, " +
                        type_name(pieces->items[i]) + " found");
    }
    out.append(piece->text);
  }
  return out.finish();
}

Value justify(Call& call, bool to_left) {
  const auto bound = call.bind({"width", "fillchar"});
  MarkedText fill;
  fill.bytes = " ";
  if (bound[1]) fill = text_argument(call, bound[1]);
  const Integer missing = integer_argument(call, bound[0], 0) -
                          static_cast<Integer>(code_point_count(self_text(call).bytes));
  TextBuilder out(call.context);
  if (!to_left) append_padding(out, fill, missing);
  out.append(self_text(call));
  if (to_left) append_padding(out, fill, missing);
  return out.finish();
}
Value text_ljust(Call& call) {
  return justify(call, true);
}
Value text_rjust(Call& call) {
  return justify(call, false);
}

Value text_center(Call& call) {
  const auto bound = call.bind({"width", "fillchar"});
  MarkedText fill;
  fill.bytes = " ";
  if (bound[1]) fill = text_argument(call, bound[1]);
  return center(call.context, self_text(call), integer_argument(call, bound[0], 0), fill);
}

Value text_zfill(Call& call) {
  const auto bound = call.bind({"width"});
  const MarkedText& text = self_text(call);
  const size_t sign = text.bytes.starts_with('+') || text.bytes.starts_with('-') ? 1 : 0;
  MarkedText zero;
  zero.bytes = "0";
  TextBuilder out(call.context);
  out.append(text, 0, sign);
  append_padding(
      out, zero,
      integer_argument(call, bound[0], 0) - static_cast<Integer>(code_point_count(text.bytes)));
  out.append(text, sign, text.bytes.size());
  return out.finish();
}

Value text_removeprefix(Call& call) {
  const MarkedText &text = self_text(call), &prefix = text_argument(call, call.bind({"prefix"})[0]);
  const size_t begin = text.bytes.starts_with(prefix.bytes) ? prefix.bytes.size() : 0;
  return make_text(call.context, text.slice(begin, text.bytes.size()));
}

Value text_removesuffix(Call& call) {
  const MarkedText &text = self_text(call), &suffix = text_argument(call, call.bind({"suffix"})[0]);
  const size_t cut = text.bytes.ends_with(suffix.bytes) ? suffix.bytes.size() : 0;
  return make_text(call.context, text.slice(0, text.bytes.size() - cut));
}

}  // namespace

NativeFunction find_text_method(std::string_view name) {
  struct Entry {
    std::string_view name;
    NativeFunction function;
  };
  static constexpr Entry kMethods[] = {
      {"strip", text_strip},
      {"lstrip", text_lstrip},
      {"rstrip", text_rstrip},
      {"split", text_split},
      {"rsplit", text_rsplit},
      {"splitlines", text_splitlines},
      {"partition", text_partition},
      {"rpartition", text_rpartition},
      {"upper", text_upper},
      {"lower", text_lower},
      {"swapcase", text_swapcase},
      {"title", text_title},
      {"capitalize", text_capitalize},
      {"replace", text_replace},
      {"join", text_join},
      {"ljust", text_ljust},
      {"rjust", text_rjust},
      {"center", text_center},
      {"zfill", text_zfill},
      {"removeprefix", text_removeprefix},
      {"format", format_braces},
      {"removesuffix", text_removesuffix},
  };
  for (const Entry& entry : kMethods) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace baton::jinja
