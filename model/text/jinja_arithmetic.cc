// + - * / // % ** with Python's rules for numbers, strings and lists.
#include <cmath>

#include "model/text/jinja_format.h"
#include "model/text/jinja_operators.h"

namespace baton::jinja {
namespace {

const char* symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

[[noreturn]] void throw_unsupported(BinaryOperator op, const Value& a, const Value& b) {
  if (op == BinaryOperator::kAdd && a.text()) {
    throw RenderError("can only concatenate str (not \"" + type_name(b) + "\") to str");
  }
  throw RenderError(std::string("unsupported operand type(s) for ") + symbol(op) + ": '" +
                    type_name(a) + "' and '" + type_name(b) + "'");
}

Integer checked(bool overflow, Integer value) {
  if (overflow) throw RenderError("integer overflow: numbers have 128 bits here");
  return value;
}

Integer floor_divide(Integer a, Integer b) {
  if (b == 0) throw RenderError("integer division or modulo by zero");
  if (b == -1) {
    Integer result = 0;
    const bool overflow = __builtin_sub_overflow(Integer{0}, a, &result);
    return checked(overflow, result);
  }
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Integer integer_power(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    if (exponent & 1) {
      const bool overflow = __builtin_mul_overflow(result, base, &result);
      checked(overflow, result);
    }
    exponent >>= 1;
    if (exponent == 0) break;
    const bool overflow = __builtin_mul_overflow(base, base, &base);
    checked(overflow, base);
  }
  return result;
}

Value integer_binary(BinaryOperator op, Integer a, Integer b) {
  Integer result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::kDivide:
      if (b == 0) throw RenderError("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOperator::kFloorDivide:
      return floor_divide(a, b);
    case BinaryOperator::kModulo:
      return b == -1 ? Integer{0} : a - floor_divide(a, b) * b;
    case BinaryOperator::kPower:
      if (b >= 0) return integer_power(a, b);
      return std::pow(static_cast<double>(a), static_cast<double>(b));
  }
  return checked(overflow, result);
}

Value float_binary(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return a + b;
    case BinaryOperator::kSubtract:
      return a - b;
    case BinaryOperator::kMultiply:
      return a * b;
    case BinaryOperator::kPower:
      return std::pow(a, b);
    default:
      break;
  }
  if (b == 0) throw RenderError("float division by zero");
  if (op == BinaryOperator::kDivide) return a / b;
  if (op == BinaryOperator::kFloorDivide) return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// "<" and so on of the side that is not markup, as markupsafe joins the two.
Value add_texts(RenderContext& context, const Text& a, const Text& b) {
  const bool is_markup = a.is_markup || b.is_markup;
  TextBuilder out(context);
  out.append(is_markup && !a.is_markup ? escape_html(context, a.text) : a.text);
  out.append(is_markup && !b.is_markup ? escape_html(context, b.text) : b.text);
  return out.finish(is_markup);
}

Value add_sequences(RenderContext& context, const Sequence& a, const Sequence& b) {
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return make_sequence(context, a.kind, std::move(items));
}

Value repeat(RenderContext& context, const Value& value, Integer count) {
  if (count > INT64_MAX || count < INT64_MIN) {
    throw RenderError("cannot fit 'int' into an index-sized integer");
  }
  if (count < 0) count = 0;
  if (const Text* text = value.text()) {
    TextBuilder out(context);
    if (!text->text.bytes.empty()) {
      for (Integer i = 0; i < count; ++i) out.append(text->text);
    }
    return out.finish(text->is_markup);
  }
  const Sequence& sequence = *value.sequence();
  std::vector<Value> items;
  Charge charge = context.charge(0);
  for (Integer i = 0; i < count && !sequence.items.empty(); ++i) {
    charge.grow(static_cast<int64_t>(sequence.items.size() * sizeof(Value)));
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_sequence(context, sequence.kind, std::move(items));
}

bool is_repeatable(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.text() || (sequence && (sequence->kind == SequenceKind::kList ||
                                       sequence->kind == SequenceKind::kTuple));
}

}  // namespace

std::optional<Integer> as_integer(const Value& value) {
  if (const bool* flag = value.get<bool>()) return *flag ? 1 : 0;
  if (const auto* integer = value.get<Integer>()) return *integer;
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (const double* number = value.get<double>()) return *number;
  if (const auto integer = as_integer(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

void throw_undefined(const Undefined& undefined) {
  throw RenderError(undefined.reason ? *undefined.reason : "the value is undefined");
}

Value binary(RenderContext& context, BinaryOperator op, const Value& a, const Value& b) {
  if (op == BinaryOperator::kModulo && a.text()) {
    return format_percent(context, *a.text(), b);
  }
  if (a.undefined()) throw_undefined(*a.undefined());
  if (b.undefined()) throw_undefined(*b.undefined());
  const auto integer_a = as_integer(a), integer_b = as_integer(b);
  if (integer_a && integer_b) return integer_binary(op, *integer_a, *integer_b);
  const auto number_a = as_number(a), number_b = as_number(b);
  if (number_a && number_b) return float_binary(op, *number_a, *number_b);
  if (op == BinaryOperator::kAdd) {
    if (a.text() && b.text()) return add_texts(context, *a.text(), *b.text());
    if (is_repeatable(a) && is_repeatable(b) && a.sequence() && b.sequence() &&
        a.sequence()->kind == b.sequence()->kind) {
      return add_sequences(context, *a.sequence(), *b.sequence());
    }
  }
  if (op == BinaryOperator::kMultiply) {
    if (is_repeatable(a) && integer_b) return repeat(context, a, *integer_b);
    if (is_repeatable(b) && integer_a) return repeat(context, b, *integer_a);
  }
  throw_unsupported(op, a, b);
}

Value negate(const Value& value) {
  if (value.undefined()) throw_undefined(*value.undefined());
  if (const auto integer = as_integer(value)) {
    return integer_binary(BinaryOperator::kSubtract, 0, *integer);
  }
  if (const double* number = value.get<double>()) return -*number;
  throw RenderError("bad operand type for unary -: '" + type_name(value) + "'");
}

}  // namespace baton::jinja
