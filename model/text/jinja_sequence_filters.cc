// Filters on sequences as wholes: length, join, sort and so on.
#include <algorithm>

#include "model/text/jinja_filters.h"
#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

std::vector<Value> input_items(const Call& call) {
  return iterate(call.context, call.self)->items;
}

bool flag(const Value* value) {
  return value && is_true(*value);
}

Value filter_length(Call& call) {
  call.bind({});
  if (const Text* text = call.self.text()) {
    call.context.work(static_cast<int64_t>(text->text.bytes.size()));
    return Value(code_point_count(text->text.bytes));
  }
  if (const Dict* dict = call.self.dict()) return Value(dict->entries.size());
  if (call.self.undefined()) return Integer{0};
  const Sequence* sequence = call.self.sequence();
  if (!sequence || sequence->kind == SequenceKind::kGenerator) {
    throw RenderError("object of type '" + type_name(call.self) + "' has no len()");
  }
  return Value(sequence->items.size());
}

Value filter_first(Call& call) {
  call.bind({});
  const SequencePtr items = iterate(call.context, call.self);
  return items->items.empty() ? make_undefined("No first item, sequence was empty.")
                              : items->items.front();
}

Value filter_last(Call& call) {
  call.bind({});
  const SequencePtr items = iterate(call.context, call.self);
  return items->items.empty() ? make_undefined("No last item, sequence was empty.")
                              : items->items.back();
}

Value filter_list(Call& call) {
  call.bind({});
  return make_sequence(call.context, SequenceKind::kList, input_items(call));
}

Value filter_join(Call& call) {
  const auto bound = call.bind({"d", "attribute"});
  const MarkedText separator = bound[0] ? to_text(call.context, *bound[0]) : MarkedText{};
  TextBuilder out(call.context);
  bool first = true;
  const SequencePtr input = iterate(call.context, call.self);
  for (const Value& item : input->items) {
    if (!first) out.append(separator);
    first = false;
    out.append(to_text(call.context,
                       is_given(bound[1]) ? attribute_path(call.context, item, *bound[1]) : item));
  }
  return out.finish();
}

Value filter_reverse(Call& call) {
  call.bind({});
  if (call.self.text()) {
    return slice(call.context, call.self, None{}, None{}, Integer{-1});
  }
  std::vector<Value> items = input_items(call);
  std::reverse(items.begin(), items.end());
  return make_sequence(call.context, SequenceKind::kGenerator, std::move(items));
}

// What an item is sorted or compared by: its attribute where one is named, folded.
Value sort_key(Call& call, const Value& item, const Value* path, bool case_sensitive) {
  return folded(call.context, is_given(path) ? attribute_path(call.context, item, *path) : item,
                case_sensitive);
}

// The key of `sort`, where "a,b" names several attributes.
Value multiple_sort_key(Call& call, const Value& item, const Value* path, bool case_sensitive) {
  if (!is_given(path) || !path->text()) return sort_key(call, item, path, case_sensitive);
  std::vector<Value> keys;
  const std::string_view all = path->text()->text.bytes;
  for (size_t at = 0; at <= all.size();) {
    const size_t comma = std::min(all.find(',', at), all.size());
    const Value part = make_text(call.context, all.substr(at, comma - at));
    keys.push_back(sort_key(call, item, &part, case_sensitive));
    at = comma + 1;
  }
  return make_sequence(call.context, SequenceKind::kList, std::move(keys));
}

using Keyed = std::pair<Value, Value>;  // key, item

std::vector<Value> sorted_by_key(Call& call, std::vector<Keyed> keyed, bool is_reversed) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return is_reversed ? less(call.context, b.first, a.first)
                       : less(call.context, a.first, b.first);
  });
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.second));
  return items;
}

Value filter_sort(Call& call) {
  const auto bound = call.bind({"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> keyed;
  for (Value& item : input_items(call)) {
    Value key = multiple_sort_key(call, item, bound[2], flag(bound[1]));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  return make_sequence(call.context, SequenceKind::kList,
                       sorted_by_key(call, std::move(keyed), flag(bound[0])));
}

Value filter_dictsort(Call& call) {
  const auto bound = call.bind({"case_sensitive", "by", "reverse"});
  const Dict* dict = call.self.dict();
  if (!dict) throw RenderError("dictsort: want a dict, got " + type_name(call.self));
  const std::string by = bound[1] ? text_argument(call, bound[1]).bytes : "key";
  if (by != "key" && by != "value") {
    throw RenderError("You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : dict->entries) {
    keyed.emplace_back(folded(call.context, by == "key" ? key : value, flag(bound[0])),
                       make_sequence(call.context, SequenceKind::kTuple, {key, value}));
  }
  return make_sequence(call.context, SequenceKind::kList,
                       sorted_by_key(call, std::move(keyed), flag(bound[2])));
}

Value extreme(Call& call, bool wants_greatest) {
  const auto bound = call.bind({"case_sensitive", "attribute"});
  const SequencePtr items = iterate(call.context, call.self);
  if (items->items.empty()) return make_undefined("No aggregated item, sequence was empty.");
  Value best = items->items.front();
  Value best_key = sort_key(call, best, bound[1], flag(bound[0]));
  for (size_t i = 1; i < items->items.size(); ++i) {
    Value key = sort_key(call, items->items[i], bound[1], flag(bound[0]));
    const bool is_better =
        wants_greatest ? less(call.context, best_key, key) : less(call.context, key, best_key);
    if (!is_better) continue;
    best = items->items[i];
    best_key = std::move(key);
  }
  return best;
}
Value filter_min(Call& call) {
  return extreme(call, false);
}
Value filter_max(Call& call) {
  return extreme(call, true);
}

Value filter_unique(Call& call) {
  const auto bound = call.bind({"case_sensitive", "attribute"});
  DictBuilder seen(call.context);
  const SequencePtr input = iterate(call.context, call.self);
  for (const Value& item : input->items) {
    seen.set_default(sort_key(call, item, bound[1], flag(bound[0])), item);
  }
  std::vector<Value> items;
  const Value distinct = seen.finish();
  for (const auto& entry : distinct.dict()->entries) items.push_back(entry.second);
  return make_sequence(call.context, SequenceKind::kGenerator, std::move(items));
}

Value filter_sum(Call& call) {
  const auto bound = call.bind({"attribute", "start"});
  Value total = bound[1] ? *bound[1] : Value(Integer{0});
  const SequencePtr input = iterate(call.context, call.self);
  for (const Value& item : input->items) {
    const Value term = is_given(bound[0]) ? attribute_path(call.context, item, *bound[0]) : item;
    total = binary(call.context, BinaryOperator::kAdd, total, term);
  }
  return total;
}

Value filter_items(Call& call) {
  call.bind({});
  std::vector<Value> items;
  if (const Dict* dict = call.self.dict()) {
    for (const auto& [key, value] : dict->entries) {
      items.push_back(make_sequence(call.context, SequenceKind::kTuple, {key, value}));
    }
  } else if (!call.self.undefined()) {
    throw RenderError("Can only get item pairs from a mapping.");
  }
  return make_sequence(call.context, SequenceKind::kGenerator, std::move(items));
}

}  // namespace

Value folded(RenderContext& context, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.text()) return value;
  Call call{context, "lower", value, {}, {}};
  return find_text_method("lower")(call);
}

NativeFunction find_sequence_filter(std::string_view name) {
  struct Entry {
    std::string_view name;
    NativeFunction function;
  };
  static constexpr Entry kFilters[] = {
      {"length", filter_length},   {"count", filter_length}, {"first", filter_first},
      {"last", filter_last},       {"list", filter_list},    {"join", filter_join},
      {"reverse", filter_reverse}, {"sort", filter_sort},    {"dictsort", filter_dictsort},
      {"min", filter_min},         {"max", filter_max},      {"unique", filter_unique},
      {"sum", filter_sum},         {"items", filter_items},
  };
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace baton::jinja
