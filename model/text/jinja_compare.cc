// Truth, equality, order and membership.
#include <algorithm>

#include "model/text/jinja_operators.h"

namespace baton::jinja {
namespace {

bool items_equal(RenderContext& context, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equals(context, a[i], b[i])) return false;
  }
  return true;
}

bool dicts_equal(RenderContext& context, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (!other || !equals(context, value, *other)) return false;
  }
  return true;
}

bool sequences_equal(RenderContext& context, const SequencePtr& a, const SequencePtr& b) {
  if (a == b) return true;
  const bool is_plain = a->kind == SequenceKind::kList || a->kind == SequenceKind::kTuple ||
                        a->kind == SequenceKind::kRange;
  return is_plain && a->kind == b->kind && items_equal(context, a->items, b->items);
}

bool items_less(RenderContext& context, const std::vector<Value>& a, const std::vector<Value>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!equals(context, a[i], b[i])) return less(context, a[i], b[i]);
  }
  return a.size() < b.size();
}

}  // namespace

bool is_true(const Value& value) {
  if (const bool* flag = value.get<bool>()) return *flag;
  if (const auto* integer = value.get<Integer>()) return *integer != 0;
  if (const double* number = value.get<double>()) return *number != 0;
  if (const Text* text = value.text()) return !text->text.bytes.empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->kind == SequenceKind::kGenerator || !sequence->items.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  return !value.undefined() && !value.is<None>();
}

bool equals(RenderContext& context, const Value& a, const Value& b) {
  context.step();
  if (const Text* text = a.text()) {
    const Text* other = b.text();
    context.work(static_cast<int64_t>(text->text.bytes.size()));
    return other && text->text.bytes == other->text.bytes;
  }
  const auto integer_a = as_integer(a), integer_b = as_integer(b);
  if (integer_a && integer_b) return *integer_a == *integer_b;
  const auto number_a = as_number(a), number_b = as_number(b);
  if (number_a && number_b) return *number_a == *number_b;
  if (a.variant().index() != b.variant().index()) return false;
  if (a.sequence()) return sequences_equal(context, *a.get<SequencePtr>(), *b.get<SequencePtr>());
  if (a.dict()) return dicts_equal(context, *a.dict(), *b.dict());
  if (const auto* ns = a.get<NamespacePtr>()) return *ns == *b.get<NamespacePtr>();
  if (const auto* loop = a.get<LoopPtr>()) return *loop == *b.get<LoopPtr>();
  if (const auto* callable = a.get<CallablePtr>()) return *callable == *b.get<CallablePtr>();
  return true;  // none and none, undefined and undefined
}

bool less(RenderContext& context, const Value& a, const Value& b) {
  context.step();
  if (a.undefined()) throw_undefined(*a.undefined());
  if (b.undefined()) throw_undefined(*b.undefined());
  if (a.text() && b.text()) {
    context.work(static_cast<int64_t>(a.text()->text.bytes.size()));
    return a.text()->text.bytes < b.text()->text.bytes;  // bytes of UTF-8 sort as code points do
  }
  const auto integer_a = as_integer(a), integer_b = as_integer(b);
  if (integer_a && integer_b) return *integer_a < *integer_b;
  const auto number_a = as_number(a), number_b = as_number(b);
  if (number_a && number_b) return *number_a < *number_b;
  const Sequence *items_a = a.sequence(), *items_b = b.sequence();
  if (items_a && items_b && items_a->kind == items_b->kind &&
      (items_a->kind == SequenceKind::kList || items_a->kind == SequenceKind::kTuple)) {
    return items_less(context, items_a->items, items_b->items);
  }
  throw RenderError("'<' not supported between instances of '" + type_name(a) + "' and '" +
                    type_name(b) + "'");
}

bool contains(RenderContext& context, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    const Text* needle = item.text();
    if (!needle) {
      throw RenderError("'in <string>' requires string as left operand, not " + type_name(item));
    }
    context.work(static_cast<int64_t>(text->text.bytes.size()));
    return find_bytes(text->text.bytes, needle->text.bytes) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item) != nullptr;
  if (container.undefined()) return false;
  const Sequence* sequence = container.sequence();
  if (!sequence)
    throw RenderError("argument of type '" + type_name(container) + "' is not iterable");
  return std::any_of(sequence->items.begin(), sequence->items.end(),
                     [&](const Value& candidate) { return equals(context, candidate, item); });
}

bool compare(RenderContext& context, CompareOperator op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOperator::kEqual:
      return equals(context, a, b);
    case CompareOperator::kNotEqual:
      return !equals(context, a, b);
    case CompareOperator::kLess:
      return less(context, a, b);
    case CompareOperator::kGreater:
      return less(context, b, a);
    // Not the negation of the opposite: both are false for NaN.
    case CompareOperator::kLessEqual:
      return less(context, a, b) || equals(context, a, b);
    case CompareOperator::kGreaterEqual:
      return less(context, b, a) || equals(context, a, b);
    case CompareOperator::kIn:
      return contains(context, b, a);
    case CompareOperator::kNotIn:
      return !contains(context, b, a);
  }
  return false;
}

}  // namespace baton::jinja
