// `value is test(arguments)`.
#include "model/text/jinja_filters.h"
#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

const Value& argument(const Call& call) {
  if (call.args.size() != 1 || !call.kwargs.empty()) {
    throw RenderError("test '" + std::string(call.name) + "': wants one argument, got " +
                      std::to_string(call.args.size()));
  }
  return call.args[0];
}

Value is_defined(Call& call) {
  return !call.self.undefined();
}
Value is_undefined(Call& call) {
  return call.self.undefined() != nullptr;
}
Value is_none(Call& call) {
  return call.self.is<None>();
}
Value is_boolean(Call& call) {
  return call.self.is<bool>();
}
Value is_exactly_true(Call& call) {
  return call.self.is<bool>() && is_true(call.self);
}
Value is_exactly_false(Call& call) {
  return call.self.is<bool>() && !is_true(call.self);
}
Value is_integer(Call& call) {
  return call.self.is<Integer>();
}
Value is_float(Call& call) {
  return call.self.is<double>();
}
Value is_number(Call& call) {
  return as_number(call.self).has_value();
}
Value is_string(Call& call) {
  return call.self.text() != nullptr;
}
Value is_mapping(Call& call) {
  return call.self.dict() != nullptr;
}
Value is_callable(Call& call) {
  return call.self.is<CallablePtr>() || call.self.undefined();
}
Value is_escaped(Call& call) {
  return call.self.text() && call.self.text()->is_markup;
}
Value is_iterable(Call& call) {
  return call.self.text() || call.self.sequence() || call.self.dict() || call.self.undefined() ||
         call.self.is<LoopPtr>();
}

// What has a length and items by index; jinja2 counts undefined among them.
Value is_sequence(Call& call) {
  const Sequence* sequence = call.self.sequence();
  if (!sequence) return call.self.text() || call.self.dict() || call.self.undefined();
  return sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple ||
         sequence->kind == SequenceKind::kRange;
}

Integer modulo(Call& call, const Value& divisor) {
  const Value rest = binary(call.context, BinaryOperator::kModulo, call.self, divisor);
  return as_integer(rest).value_or(*as_number(rest) == 0 ? 0 : *as_number(rest) == 1 ? 1 : 2);
}
Value is_odd(Call& call) {
  return modulo(call, Integer{2}) == 1;
}
Value is_even(Call& call) {
  return modulo(call, Integer{2}) == 0;
}
Value is_divisibleby(Call& call) {
  return modulo(call, argument(call)) == 0;
}

Value case_test(Call& call, std::string_view method) {
  Call inner{
      call.context, method, make_text(call.context, to_text(call.context, call.self)), {}, {}};
  return find_text_query(method)(inner);
}
Value is_lower(Call& call) {
  return case_test(call, "islower");
}
Value is_upper(Call& call) {
  return case_test(call, "isupper");
}

Value compares(Call& call, CompareOperator op) {
  return compare(call.context, op, call.self, argument(call));
}
Value is_eq(Call& call) {
  return compares(call, CompareOperator::kEqual);
}
Value is_ne(Call& call) {
  return compares(call, CompareOperator::kNotEqual);
}
Value is_lt(Call& call) {
  return compares(call, CompareOperator::kLess);
}
Value is_le(Call& call) {
  return compares(call, CompareOperator::kLessEqual);
}
Value is_gt(Call& call) {
  return compares(call, CompareOperator::kGreater);
}
Value is_ge(Call& call) {
  return compares(call, CompareOperator::kGreaterEqual);
}
Value is_in(Call& call) {
  return compares(call, CompareOperator::kIn);
}

// Identity: here, equal and of one kind.
Value is_sameas(Call& call) {
  const Value& other = argument(call);
  return call.self.variant().index() == other.variant().index() &&
         equals(call.context, call.self, other);
}

Value is_filter(Call& call) {
  return call.self.text() && find_filter(call.self.text()->text.bytes) != nullptr;
}
Value is_test(Call& call) {
  return call.self.text() && find_test(call.self.text()->text.bytes) != nullptr;
}

}  // namespace

NativeFunction find_test(std::string_view name) {
  struct Entry {
    std::string_view name;
    NativeFunction function;
  };
  static constexpr Entry kTests[] = {
      {"defined", is_defined},
      {"undefined", is_undefined},
      {"none", is_none},
      {"boolean", is_boolean},
      {"true", is_exactly_true},
      {"false", is_exactly_false},
      {"integer", is_integer},
      {"float", is_float},
      {"number", is_number},
      {"string", is_string},
      {"mapping", is_mapping},
      {"callable", is_callable},
      {"escaped", is_escaped},
      {"iterable", is_iterable},
      {"sequence", is_sequence},
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisibleby},
      {"lower", is_lower},
      {"upper", is_upper},
      {"eq", is_eq},
      {"==", is_eq},
      {"equalto", is_eq},
      {"ne", is_ne},
      {"!=", is_ne},
      {"lt", is_lt},
      {"<", is_lt},
      {"lessthan", is_lt},
      {"le", is_le},
      {"<=", is_le},
      {"gt", is_gt},
      {">", is_gt},
      {"greaterthan", is_gt},
      {"ge", is_ge},
      {">=", is_ge},
      {"in", is_in},
      {"sameas", is_sameas},
      {"filter", is_filter},
      {"test", is_test},
  };
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace baton::jinja
