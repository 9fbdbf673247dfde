// The lookup of methods, and those of list and dict; `loop`.
#include "model/text/jinja_methods.h"

#include <algorithm>

#include "model/text/jinja_operators.h"

namespace baton::jinja {
namespace {

Value dict_view(Call& call, SequenceKind kind) {
  call.bind({});
  std::vector<Value> items;
  for (const auto& [key, value] : call.self.dict()->entries) {
    if (kind == SequenceKind::kKeys) {
      items.push_back(key);
    } else if (kind == SequenceKind::kValues) {
      items.push_back(value);
    } else {
      items.push_back(make_sequence(call.context, SequenceKind::kTuple, {key, value}));
    }
  }
  return make_sequence(call.context, kind, std::move(items));
}

Value dict_items(Call& call) {
  return dict_view(call, SequenceKind::kItems);
}
Value dict_keys(Call& call) {
  return dict_view(call, SequenceKind::kKeys);
}
Value dict_values(Call& call) {
  return dict_view(call, SequenceKind::kValues);
}

Value dict_get(Call& call) {
  const auto bound = call.bind({"key", "default"});
  if (!bound[0]) throw RenderError("get expected at least 1 argument, got 0");
  if (const Value* found = call.self.dict()->find(*bound[0])) return *found;
  return bound[1] ? *bound[1] : Value(None{});
}

Value self_copy(Call& call) {
  call.bind({});
  return call.self;  // values do not change, so a copy is as good as the original
}

Value list_count(Call& call) {
  const auto bound = call.bind({"value"});
  if (!bound[0]) throw RenderError("count() takes exactly one argument (0 given)");
  const auto& items = call.self.sequence()->items;
  return Value(static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& v) {
    return equals(call.context, v, *bound[0]);
  })));
}

Value list_index(Call& call) {
  const auto bound = call.bind({"value"});
  if (!bound[0]) throw RenderError("index expected at least 1 argument, got 0");
  const auto& items = call.self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(call.context, items[i], *bound[0])) return Value(i);
  }
  throw RenderError("value is not in list");
}

NativeFunction find_dict_method(std::string_view name) {
  if (name == "items") return dict_items;
  if (name == "keys") return dict_keys;
  if (name == "values") return dict_values;
  if (name == "get") return dict_get;
  if (name == "copy") return self_copy;
  return nullptr;
}

NativeFunction find_list_method(std::string_view name) {
  if (name == "count") return list_count;
  if (name == "index") return list_index;
  if (name == "copy") return self_copy;
  return nullptr;
}

bool is_mutator(const Value& object, std::string_view name) {
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                        "pop",    "remove", "reverse", "sort"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (object.dict()) return has(kDict);
  return object.sequence() && object.sequence()->kind == SequenceKind::kList && has(kList);
}

Value loop_cycle(Call& call) {
  const Loop& loop = **call.self.get<LoopPtr>();
  if (call.args.empty()) throw RenderError("no items for cycling given");
  return call.args[loop.index % call.args.size()];
}

Value bound_method(const Value& object, std::string_view name, NativeFunction function) {
  auto callable = std::make_shared<Callable>();
  callable->name = name;
  callable->native = function;
  callable->self = object;
  return CallablePtr(std::move(callable));
}

}  // namespace

Value find_method(const Value& object, std::string_view name) {
  if (is_mutator(object, name)) {
    return make_undefined("access to attribute '" + std::string(name) + "' of '" +
                          type_name(object) + "' object is unsafe.");
  }
  NativeFunction function = nullptr;
  if (object.text()) {
    function = find_text_method(name);
    if (!function) function = find_text_query(name);
  } else if (object.dict()) {
    function = find_dict_method(name);
  } else if (object.sequence() && (object.sequence()->kind == SequenceKind::kList ||
                                   object.sequence()->kind == SequenceKind::kTuple)) {
    function = find_list_method(name);
  }
  return function ? bound_method(object, name, function) : Value();
}

Value loop_attribute(const Value& value, std::string_view name) {
  const Loop& loop = **value.get<LoopPtr>();
  const auto& items = loop.items->items;
  const size_t rest = items.size() - loop.index;  // this one included
  if (name == "index") return Value(loop.index + 1);
  if (name == "index0") return Value(loop.index);
  if (name == "revindex") return Value(rest);
  if (name == "revindex0") return Value(rest - 1);
  if (name == "first") return loop.index == 0;
  if (name == "last") return rest == 1;
  if (name == "length") return Value(items.size());
  if (name == "depth") return Integer{1};  // more only in recursive loops, which there are none of
  if (name == "depth0") return Integer{0};
  if (name == "previtem") {
    return loop.index == 0 ? make_undefined("there is no previous item") : items[loop.index - 1];
  }
  if (name == "nextitem") {
    return rest == 1 ? make_undefined("there is no next item") : items[loop.index + 1];
  }
  if (name == "cycle") return bound_method(value, name, loop_cycle);
  return make_undefined("'loop' has no attribute '" + std::string(name) + "'");
}

const MarkedText& text_argument(const Call& call, const Value* value) {
  if (!value || !value->text()) {
    throw RenderError(std::string(call.name) + "(): want a string, got " +
                      (value ? type_name(*value) : "nothing"));
  }
  return value->text()->text;
}

Integer integer_argument(const Call& call, const Value* value, Integer fallback) {
  if (!value) return fallback;
  const auto integer = as_integer(*value);
  if (!integer) {
    throw RenderError(std::string(call.name) + "(): want an integer, got " + type_name(*value));
  }
  return *integer;
}

bool is_given(const Value* value) {
  return value && !value->is<None>();
}

}  // namespace baton::jinja
