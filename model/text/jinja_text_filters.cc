// Filters from text to text.
#include <algorithm>

#include "model/text/jinja_filters.h"
#include "model/text/jinja_format.h"
#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"
#include "model/text/jinja_string_tools.h"

namespace baton::jinja {
namespace {

MarkedText input_text(const Call& call) {
  return to_text(call.context, call.self);
}
bool is_markup(const Call& call) {
  return call.self.text() && call.self.text()->is_markup;
}

Value filter_string(Call& call) {
  call.bind({});
  return call.self.text() ? call.self : make_text(call.context, input_text(call));
}

Value convert(Call& call, std::string (*change)(int32_t)) {
  call.bind({});
  TextBuilder out(call.context);
  append_converted(out, input_text(call), change);
  return out.finish(is_markup(call));
}
Value filter_upper(Call& call) {
  return convert(call, to_upper);
}
Value filter_lower(Call& call) {
  return convert(call, to_lower);
}

Value filter_capitalize(Call& call) {
  call.bind({});
  return capitalize(call.context, input_text(call));
}

// A word begins after blanks and after - ( { [ <, unlike in str.title().
Value filter_title(Call& call) {
  call.bind({});
  TextBuilder out(call.context);
  bool at_start = true;
  append_converted(out, input_text(call), [&](int32_t c) {
    const bool is_first = at_start;
    at_start = is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    return is_first ? to_upper(c) : to_lower(c);
  });
  return out.finish();
}

Value filter_trim(Call& call) {
  const auto bound = call.bind({"chars"});
  const MarkedText* characters = is_given(bound[0]) ? &text_argument(call, bound[0]) : nullptr;
  return make_text(call.context, strip(input_text(call), characters, true, true), is_markup(call));
}

Value filter_center(Call& call) {
  const auto bound = call.bind({"width"});
  MarkedText blank;
  blank.bytes = " ";
  return center(call.context, input_text(call), integer_argument(call, bound[0], 80), blank);
}

Value filter_replace(Call& call) {
  const auto bound = call.bind({"old", "new", "count"});
  if (!bound[0] || !bound[1]) throw RenderError("replace: wants what to replace, and by what");
  return replace_all(call.context, input_text(call), to_text(call.context, *bound[0]),
                     to_text(call.context, *bound[1]),
                     is_given(bound[2]) ? integer_argument(call, bound[2], -1) : Integer{-1});
}

Value filter_indent(Call& call) {
  const auto bound = call.bind({"width", "first", "blank"});
  if (!call.self.text()) throw RenderError("indent: want a string, got " + type_name(call.self));
  TextBuilder indent(call.context);
  MarkedText blank;
  blank.bytes = " ";
  if (bound[0] && bound[0]->text()) {
    indent.append(bound[0]->text()->text);
  } else {
    append_padding(indent, blank, integer_argument(call, bound[0], 4));
  }
  const MarkedText indention = indent.take(), text = input_text(call);
  const bool indents_first = bound[1] && is_true(*bound[1]);
  const bool indents_blank = bound[2] && is_true(*bound[2]);
  const std::vector<ByteRange> lines = split_lines(text.bytes + "\n", false);
  TextBuilder out(call.context);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    const bool is_empty = lines[i].begin == lines[i].end;
    if (i == 0 ? indents_first : indents_blank || !is_empty) out.append(indention);
    out.append(text, lines[i].begin, lines[i].end);
  }
  return out.finish();
}

Value filter_truncate(Call& call) {
  const auto bound = call.bind({"length", "killwords", "end", "leeway"});
  const MarkedText text = input_text(call);
  MarkedText end;
  end.bytes = "...";
  if (bound[2]) end = text_argument(call, bound[2]);
  const Integer length = integer_argument(call, bound[0], 255);
  const Integer leeway = is_given(bound[3]) ? integer_argument(call, bound[3], 5) : Integer{5};
  const auto end_length = static_cast<Integer>(code_point_count(end.bytes));
  if (length < end_length) throw RenderError("truncate: length is smaller than that of `end`");
  if (static_cast<Integer>(code_point_count(text.bytes)) <= length + leeway) {
    return make_text(call.context, text);
  }
  size_t cut = code_point_offset(text.bytes, static_cast<size_t>(length - end_length));
  if (!(bound[1] && is_true(*bound[1]))) {
    cut = std::min(cut, std::string_view(text.bytes).substr(0, cut).rfind(' '));
  }
  TextBuilder out(call.context);
  out.append(text, 0, cut);
  out.append(end);
  return out.finish();
}

Value filter_safe(Call& call) {
  call.bind({});
  return make_text(call.context, input_text(call), true);
}

Value filter_escape(Call& call) {
  call.bind({});
  if (is_markup(call)) return call.self;
  return make_text(call.context, escape_html(call.context, input_text(call)), true);
}

Value filter_forceescape(Call& call) {
  call.bind({});
  return make_text(call.context, escape_html(call.context, input_text(call)), true);
}

Value filter_format(Call& call) {
  const Value format = call.self.text() ? call.self : make_text(call.context, input_text(call));
  Value values;
  if (!call.kwargs.empty()) {
    if (!call.args.empty()) throw RenderError("format: can't handle both args and kwargs");
    DictBuilder dict(call.context);
    for (const auto& [key, value] : call.kwargs) dict.set(make_text(call.context, key), value);
    values = dict.finish();
  } else {
    values = make_sequence(call.context, SequenceKind::kTuple, call.args);
  }
  return format_percent(call.context, *format.text(), values);
}

JsonStyle json_style(const Call& call) {
  const auto bound = call.bind({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound[0] && is_true(*bound[0]);
  style.is_indented = is_given(bound[1]);
  style.item_separator.bytes = style.is_indented ? "," : ", ";
  style.key_separator.bytes = ": ";
  if (style.is_indented && bound[1]->text()) {
    style.indent = bound[1]->text()->text;
  } else if (style.is_indented) {
    const Integer width = std::clamp<Integer>(integer_argument(call, bound[1], 0), 0, 1000);
    style.indent.bytes.assign(static_cast<size_t>(width), ' ');
  }
  if (is_given(bound[2])) {
    const SequencePtr pair = iterate(call.context, *bound[2]);
    if (pair->items.size() != 2) throw RenderError("tojson: separators wants two strings");
    style.item_separator = text_argument(call, &pair->items[0]);
    style.key_separator = text_argument(call, &pair->items[1]);
  }
  style.sort_keys = bound[3] && is_true(*bound[3]);
  return style;
}

Value filter_tojson(Call& call) {
  const JsonStyle style = json_style(call);
  TextBuilder out(call.context);
  append_json(out, call.self, style);
  return out.finish();
}

}  // namespace

NativeFunction find_text_filter(std::string_view name) {
  struct Entry {
    std::string_view name;
    NativeFunction function;
  };
  static constexpr Entry kFilters[] = {
      {"string", filter_string}, {"upper", filter_upper},
      {"lower", filter_lower},   {"capitalize", filter_capitalize},
      {"title", filter_title},   {"trim", filter_trim},
      {"center", filter_center}, {"replace", filter_replace},
      {"indent", filter_indent}, {"truncate", filter_truncate},
      {"safe", filter_safe},     {"escape", filter_escape},
      {"e", filter_escape},      {"forceescape", filter_forceescape},
      {"format", filter_format}, {"tojson", filter_tojson},
  };
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace baton::jinja
