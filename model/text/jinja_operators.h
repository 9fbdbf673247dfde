// Python's operators on template values. Errors are RenderError, worded as Python words them.
#pragma once

#include <optional>

#include "model/text/jinja_value.h"

namespace baton::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOperator {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

bool is_true(const Value& value);
bool equals(RenderContext& context, const Value& a, const Value& b);
bool less(RenderContext& context, const Value& a,
          const Value& b);  // throws where Python has no order
bool contains(RenderContext& context, const Value& container, const Value& item);
bool compare(RenderContext& context, CompareOperator op, const Value& a, const Value& b);

Value binary(RenderContext& context, BinaryOperator op, const Value& a, const Value& b);
Value negate(const Value& value);

// object[key] and object.name as jinja2 looks them up: undefined where there is nothing.
Value subscript(RenderContext& context, const Value& object, const Value& key);
Value slice(RenderContext& context, const Value& object, const Value& start, const Value& stop,
            const Value& step);
Value attribute(const Value& object, std::string_view name);

// What `for` and the filters iterate over: items, characters, keys. Throws for what cannot be
// iterated.
SequencePtr iterate(RenderContext& context, const Value& value);

// Number as double or integer, bool included.
std::optional<double> as_number(const Value& value);
std::optional<Integer> as_integer(const Value& value);
[[noreturn]] void throw_undefined(const Undefined& undefined);

}  // namespace baton::jinja
