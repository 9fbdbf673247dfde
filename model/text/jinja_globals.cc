// The functions every template can call.
#include <ctime>

#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

constexpr Integer kRangeMax = 100'000;  // as in jinja2's sandbox

Value global_range(Call& call) {
  const auto bound = call.bind({"start", "stop", "step"});
  if (!bound[0]) throw RenderError("range expected at least 1 argument, got 0");
  Integer start = integer_argument(call, bound[0], 0), stop = start;
  const Integer step = integer_argument(call, bound[2], 1);
  if (bound[1]) {
    stop = integer_argument(call, bound[1], 0);
  } else {
    start = 0;
  }
  if (step == 0) throw RenderError("range() arg 3 must not be zero");
  std::vector<Value> items;
  bool is_past_end = false;
  for (Integer i = start; !is_past_end && (step > 0 ? i < stop : i > stop);
       is_past_end = __builtin_add_overflow(i, step, &i)) {
    if (static_cast<Integer>(items.size()) >= kRangeMax) {
      throw RenderError("Range too big. The sandbox blocks ranges larger than 100000.");
    }
    items.push_back(i);
  }
  return make_sequence(call.context, SequenceKind::kRange, std::move(items));
}

// dict() and namespace(): pairs of the one positional argument, then the keyword arguments.
Value global_dict(Call& call) {
  DictBuilder dict(call.context);
  if (call.args.size() > 1) throw RenderError("dict expected at most 1 argument");
  for (const Value& source : call.args) {
    if (const Dict* given = source.dict()) {
      for (const auto& [key, value] : given->entries) dict.set(key, value);
      continue;
    }
    const SequencePtr pairs = iterate(call.context, source);
    for (const Value& pair : pairs->items) {
      const SequencePtr parts = iterate(call.context, pair);
      if (parts->items.size() != 2) throw RenderError("dict() wants pairs of key and value");
      dict.set(parts->items[0], parts->items[1]);
    }
  }
  for (const auto& [key, value] : call.kwargs) dict.set(make_text(call.context, key), value);
  return dict.finish();
}

Value global_namespace(Call& call) {
  const Value dict = global_dict(call);
  auto ns = std::make_shared<Namespace>();
  ns->charge = call.context.charge(256);
  call.context.keep(ns);
  for (const auto& [key, value] : dict.dict()->entries) {
    ns->attributes[to_text(call.context, key).bytes] = value;
  }
  return ns;
}

Value global_raise_exception(Call& call) {
  const auto bound = call.bind({"message"});
  throw RenderError(bound[0] ? to_text(call.context, *bound[0]).bytes : "raise_exception",
                    /*from_template=*/true);
}

// UTC; names of months and days in English.
Value global_strftime_now(Call& call) {
  const std::string& format = text_argument(call, call.bind({"format"})[0]).bytes;
  if (format.empty()) return make_text(call.context, "");
  const std::time_t now = call.context.now_unix_s();
  std::tm fields{};
  gmtime_r(&now, &fields);
  char buffer[1024];
  // A blank in front tells "" from a failure.
  const size_t size = std::strftime(buffer, sizeof(buffer), (" " + format).c_str(), &fields);
  if (size == 0) throw RenderError("strftime_now: the result is longer than 1023 bytes");
  return make_text(call.context, std::string_view(buffer + 1, size - 1));
}

}  // namespace

NativeFunction find_global(std::string_view name) {
  if (name == "range") return global_range;
  if (name == "dict") return global_dict;
  if (name == "namespace") return global_namespace;
  if (name == "raise_exception") return global_raise_exception;
  if (name == "strftime_now") return global_strftime_now;
  return nullptr;
}

}  // namespace baton::jinja
