#include "model/text/jinja_evaluator.h"

#include "model/text/jinja_filters.h"
#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent_) {
    for (const auto& [known, value] : scope->variables_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : variables_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

void Scope::keep() {
  for (Scope* scope = this; scope && !scope->is_kept_; scope = scope->parent_) {
    scope->is_kept_ = true;
  }
}

Evaluator::Evaluator(RenderContext& context, const Dict& variables)
    : context_(context), variables_(variables), root_(nullptr) {}

Evaluator::~Evaluator() {
  for (const auto& scope : kept_scopes_) scope->clear();
}

Value Evaluator::evaluate(const Expression& expression, Scope& scope) {
  const DepthGuard guard(context_);
  context_.step();
  line_ = expression.line;
  return std::visit([&](const auto& node) { return visit(node, scope); }, expression.node);
}

Value Evaluator::evaluate_or_none(const ExpressionPtr& expression, Scope& scope) {
  return expression ? evaluate(*expression, scope) : Value(None{});
}

Value Evaluator::visit(const Literal& node, Scope&) {
  return node.value;
}

Value Evaluator::visit(const Name& node, Scope& scope) {
  if (const Value* found = scope.find(node.name)) return *found;
  if (const Value* found = variables_.find(node.name)) return *found;
  if (const NativeFunction function = find_global(node.name)) {
    auto callable = std::make_shared<Callable>();
    callable->name = node.name;
    callable->native = function;
    return CallablePtr(std::move(callable));
  }
  return make_undefined("'" + node.name + "' is undefined");
}

Value Evaluator::visit(const SequenceLiteral& node, Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item, scope));
  return make_sequence(context_, node.kind, std::move(items));
}

Value Evaluator::visit(const DictLiteral& node, Scope& scope) {
  DictBuilder dict(context_);
  for (const auto& [key, value] : node.entries) {
    const Value evaluated_key = evaluate(*key, scope);
    dict.set(evaluated_key, evaluate(*value, scope));
  }
  return dict.finish();
}

Value Evaluator::visit(const AttributeOf& node, Scope& scope) {
  return attribute(evaluate(*node.object, scope), node.name);
}

Value Evaluator::visit(const Subscript& node, Scope& scope) {
  const Value object = evaluate(*node.object, scope);
  return subscript(context_, object, evaluate(*node.key, scope));
}

Value Evaluator::visit(const SliceOf& node, Scope& scope) {
  const Value object = evaluate(*node.object, scope);
  const Value start = evaluate_or_none(node.start, scope);
  const Value stop = evaluate_or_none(node.stop, scope);
  return slice(context_, object, start, stop, evaluate_or_none(node.step, scope));
}

Value Evaluator::visit(const CallOf& node, Scope& scope) {
  const Value callee = evaluate(*node.callee, scope);
  Call call{context_, {}, {}, {}, {}};
  add_arguments(call, node.arguments, scope);
  return call_value(callee, call);
}

Value Evaluator::visit(const Filter& node, Scope& scope) {
  return apply_filter(node, evaluate(*node.input, scope), scope);
}

Value Evaluator::apply_filter(const Filter& filter, Value input, Scope& scope) {
  const NativeFunction function = find_filter(filter.name);
  if (!function) throw RenderError("No filter named '" + filter.name + "'.");
  Call call{context_, filter.name, std::move(input), {}, {}};
  add_arguments(call, filter.arguments, scope);
  return function(call);
}

Value Evaluator::apply_filters(const Expression& filters, const Value& input, Scope& scope) {
  const Filter& filter = std::get<Filter>(filters.node);
  return apply_filter(filter, filter.input ? apply_filters(*filter.input, input, scope) : input,
                      scope);
}

Value Evaluator::visit(const Test& node, Scope& scope) {
  const NativeFunction function = find_test(node.name);
  if (!function) throw RenderError("No test named '" + node.name + "'.");
  Call call{context_, node.name, evaluate(*node.input, scope), {}, {}};
  add_arguments(call, node.arguments, scope);
  return is_true(function(call)) != node.is_negated;
}

Value Evaluator::visit(const Negation& node, Scope& scope) {
  const Value operand = evaluate(*node.operand, scope);
  return node.keeps_sign ? negate(negate(operand)) : negate(operand);
}

Value Evaluator::visit(const Not& node, Scope& scope) {
  return !is_true(evaluate(*node.operand, scope));
}

Value Evaluator::visit(const Binary& node, Scope& scope) {
  const Value left = evaluate(*node.left, scope);
  return binary(context_, node.op, left, evaluate(*node.right, scope));
}

Value Evaluator::visit(const Logical& node, Scope& scope) {
  Value left = evaluate(*node.left, scope);
  return is_true(left) == node.is_and ? evaluate(*node.right, scope) : left;
}

Value Evaluator::visit(const Comparison& node, Scope& scope) {
  Value left = evaluate(*node.first, scope);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand, scope);
    if (!compare(context_, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::visit(const Concatenation& node, Scope& scope) {
  TextBuilder out(context_);
  for (const ExpressionPtr& item : node.items) {
    out.append(to_text(context_, evaluate(*item, scope)));
  }
  return out.finish();
}

Value Evaluator::visit(const Conditional& node, Scope& scope) {
  if (is_true(evaluate(*node.condition, scope))) return evaluate(*node.then, scope);
  if (node.otherwise) return evaluate(*node.otherwise, scope);
  return make_undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

}  // namespace baton::jinja
