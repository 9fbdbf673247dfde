// Filters that apply another filter, a test or an attribute to every item; grouping; default.
#include <algorithm>

#include "model/text/jinja_filters.h"
#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

Value generator(Call& call, std::vector<Value> items) {
  return make_sequence(call.context, SequenceKind::kGenerator, std::move(items));
}

// Nothing where the value is false in any way, None included; else what it iterates over.
SequencePtr items_if_true(Call& call) {
  return iterate(call.context, is_true(call.self) ? call.self : Value());
}

Value filter_map(Call& call) {
  std::vector<Value> items;
  const SequencePtr input = items_if_true(call);
  if (call.args.empty()) {
    const auto bound = call.bind({"attribute", "default"});
    if (!bound[0]) throw RenderError("map requires a filter argument");
    for (const Value& item : input->items) {
      items.push_back(attribute_path(call.context, item, *bound[0], bound[1]));
    }
    return generator(call, std::move(items));
  }
  const std::string& name = text_argument(call, &call.args[0]).bytes;
  const NativeFunction filter = find_filter(name);
  if (!filter) throw RenderError("No filter named '" + name + "'.");
  for (const Value& item : input->items) {
    call.context.step();
    Call inner{call.context, name, item, {call.args.begin() + 1, call.args.end()}, call.kwargs};
    items.push_back(filter(inner));
  }
  return generator(call, std::move(items));
}

// `skip`: arguments before the test's name. Without a test, truth decides.
Value select_items(Call& call, size_t skip, bool keeps_matching) {
  NativeFunction test = nullptr;
  std::string name;
  if (call.args.size() > skip) {
    name = text_argument(call, &call.args[skip]).bytes;
    test = find_test(name);
    if (!test) throw RenderError("No test named '" + name + "'.");
  }
  if (skip > 0 && call.args.empty()) throw RenderError("Missing parameter for attribute name");
  std::vector<Value> items;
  const SequencePtr input = items_if_true(call);
  for (const Value& item : input->items) {
    call.context.step();
    Value tested = skip > 0 ? attribute_path(call.context, item, call.args[0]) : item;
    bool matches = false;
    if (test) {
      const auto first = call.args.begin() + static_cast<std::ptrdiff_t>(skip) + 1;
      Call inner{call.context, name, std::move(tested), {first, call.args.end()}, call.kwargs};
      matches = is_true(test(inner));
    } else {
      matches = is_true(tested);
    }
    if (matches == keeps_matching) items.push_back(item);
  }
  return generator(call, std::move(items));
}
Value filter_select(Call& call) {
  return select_items(call, 0, true);
}
Value filter_reject(Call& call) {
  return select_items(call, 0, false);
}
Value filter_selectattr(Call& call) {
  return select_items(call, 1, true);
}
Value filter_rejectattr(Call& call) {
  return select_items(call, 1, false);
}

Value filter_default(Call& call) {
  const auto bound = call.bind({"default_value", "boolean"});
  const bool replaces_false = bound[1] && is_true(*bound[1]);
  if (!call.self.undefined() && !(replaces_false && !is_true(call.self))) return call.self;
  return bound[0] ? *bound[0] : make_text(call.context, "");
}

Value filter_attr(Call& call) {
  const auto bound = call.bind({"name"});
  if (call.self.undefined()) throw_undefined(*call.self.undefined());
  return find_method(call.self, text_argument(call, bound[0]).bytes);
}

Value filter_batch(Call& call) {
  const auto bound = call.bind({"linecount", "fill_with"});
  const Integer size = integer_argument(call, bound[0], 0);
  if (size < 1) throw RenderError("batch: linecount must be 1 or more");
  std::vector<Value> rows, row;
  const SequencePtr input = iterate(call.context, call.self);
  for (const Value& item : input->items) {
    if (static_cast<Integer>(row.size()) == size) {
      rows.push_back(make_sequence(call.context, SequenceKind::kList, std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    const Charge charge = call.context.charge(
        is_given(bound[1]) ? static_cast<int64_t>(std::min<Integer>(size, INT32_MAX)) * 32 : 0);
    while (is_given(bound[1]) && static_cast<Integer>(row.size()) < size) row.push_back(*bound[1]);
    rows.push_back(make_sequence(call.context, SequenceKind::kList, std::move(row)));
  }
  return generator(call, std::move(rows));
}

Value filter_slice(Call& call) {
  const auto bound = call.bind({"slices", "fill_with"});
  const SequencePtr input = iterate(call.context, call.self);
  const Integer given = integer_argument(call, bound[0], 0);
  if (given < 1 || given > 100'000) throw RenderError("slice: slices must be 1 to 100000");
  const auto columns = static_cast<size_t>(given);
  const size_t per_column = input->items.size() / columns, longer = input->items.size() % columns;
  std::vector<Value> out;
  size_t at = 0;
  for (size_t column = 0; column < columns; ++column) {
    const size_t size = per_column + (column < longer ? 1 : 0);
    const auto begin = input->items.begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<Value> items(begin, begin + static_cast<std::ptrdiff_t>(size));
    if (is_given(bound[1]) && column >= longer) items.push_back(*bound[1]);
    out.push_back(make_sequence(call.context, SequenceKind::kList, std::move(items)));
    at += size;
  }
  return generator(call, std::move(out));
}

// Pairs of (key, list of items), sorted by key.
Value filter_groupby(Call& call) {
  const auto bound = call.bind({"attribute", "default", "case_sensitive"});
  if (!bound[0]) throw RenderError("groupby: wants an attribute");
  const bool case_sensitive = bound[2] && is_true(*bound[2]);
  struct Member {
    Value folded_key, key, item;
  };
  std::vector<Member> members;
  const SequencePtr input = iterate(call.context, call.self);
  for (const Value& item : input->items) {
    const Value key = attribute_path(call.context, item, *bound[0], bound[1]);
    members.push_back({folded(call.context, key, case_sensitive), key, item});
  }
  std::stable_sort(members.begin(), members.end(), [&](const Member& a, const Member& b) {
    return less(call.context, a.folded_key, b.folded_key);
  });
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < members.size(); begin = end) {
    std::vector<Value> items;
    for (end = begin; end < members.size() &&
                      equals(call.context, members[end].folded_key, members[begin].folded_key);
         ++end) {
      items.push_back(members[end].item);
    }
    const Value list = make_sequence(call.context, SequenceKind::kList, std::move(items));
    groups.push_back(make_sequence(call.context, SequenceKind::kTuple, {members[begin].key, list}));
  }
  return make_sequence(call.context, SequenceKind::kList, std::move(groups));
}

}  // namespace

Value attribute_path(RenderContext& context, const Value& item, const Value& path,
                     const Value* fallback) {
  const auto step = [&](const Value& from, const Value& key) {
    Value found = subscript(context, from, key);
    return found.undefined() && is_given(fallback) ? *fallback : found;
  };
  const Text* text = path.text();
  if (!text) return step(item, path);
  Value value = item;
  const std::string_view all = text->text.bytes;
  for (size_t at = 0; at <= all.size();) {
    const size_t dot = std::min(all.find('.', at), all.size());
    const std::string_view part = all.substr(at, dot - at);
    const bool is_index = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
    value = step(value, is_index ? Value(static_cast<int64_t>(std::stoll(std::string(part))))
                                 : make_text(context, part));
    at = dot + 1;
  }
  return value;
}

NativeFunction find_select_filter(std::string_view name) {
  struct Entry {
    std::string_view name;
    NativeFunction function;
  };
  static constexpr Entry kFilters[] = {
      {"map", filter_map},
      {"select", filter_select},
      {"reject", filter_reject},
      {"selectattr", filter_selectattr},
      {"rejectattr", filter_rejectattr},
      {"default", filter_default},
      {"d", filter_default},
      {"attr", filter_attr},
      {"batch", filter_batch},
      {"slice", filter_slice},
      {"groupby", filter_groupby},
  };
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

NativeFunction find_filter(std::string_view name) {
  if (const NativeFunction filter = find_text_filter(name)) return filter;
  if (const NativeFunction filter = find_sequence_filter(name)) return filter;
  if (const NativeFunction filter = find_select_filter(name)) return filter;
  return find_number_filter(name);
}

}  // namespace baton::jinja
