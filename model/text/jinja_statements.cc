// The statements half of the Evaluator.
#include "model/text/jinja_evaluator.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {

Evaluator::Flow Evaluator::execute(const Block& block, Scope& scope, TextBuilder& out) {
  const DepthGuard guard(context_);
  for (const Statement& statement : block) {
    const Flow flow = execute(statement, scope, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, Scope& scope, TextBuilder& out) {
  context_.step();
  line_ = statement.line;
  const auto& node = statement.node;
  if (const auto* text = std::get_if<TextOutput>(&node)) {
    out.append(text->text);
    check_output(out);
  } else if (const auto* output = std::get_if<Output>(&node)) {
    write(out, evaluate(*output->value, scope));
  } else if (const auto* branch = std::get_if<If>(&node)) {
    return run_if(*branch, scope, out);
  } else if (const auto* loop = std::get_if<For>(&node)) {
    return run_for(*loop, scope, out);
  } else if (const auto* set = std::get_if<Set>(&node)) {
    assign(set->target, evaluate(*set->value, scope), scope);
  } else if (const auto* block = std::get_if<SetBlock>(&node)) {
    assign(block->target, block_text(block->body, block->filters.get(), scope), scope);
  } else if (const auto* filtered = std::get_if<FilterBlock>(&node)) {
    write(out, block_text(filtered->body, filtered->filters.get(), scope));
  } else if (const auto* with = std::get_if<With>(&node)) {
    return run_with(*with, scope, out);
  } else if (const auto* generation = std::get_if<Generation>(&node)) {
    return in_scope(scope, [&](Scope& inner) { return execute(generation->body, inner, out); });
  } else if (const auto* macro = std::get_if<Macro>(&node)) {
    scope.set(macro->definition->name, define_macro(*macro->definition, scope));
  } else if (const auto* call = std::get_if<CallBlock>(&node)) {
    run_call_block(*call, scope, out);
  } else {
    return std::holds_alternative<Break>(node) ? Flow::kBreak : Flow::kContinue;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::run_if(const If& statement, Scope& scope, TextBuilder& out) {
  for (const auto& [condition, block] : statement.branches) {
    if (is_true(evaluate(*condition, scope))) return execute(block, scope, out);
  }
  return execute(statement.otherwise, scope, out);
}

// The items to loop over, those that fail the loop's own `if` left out.
SequencePtr Evaluator::loop_items(const For& statement, Scope& scope) {
  const SequencePtr all = iterate(context_, evaluate(*statement.iterable, scope));
  if (!statement.condition) return all;
  std::vector<Value> items;
  for (const Value& item : all->items) {
    in_scope(scope, [&](Scope& inner) {
      inner.set("loop", make_undefined("'loop' is undefined"));
      assign(statement.target, item, inner);
      if (is_true(evaluate(*statement.condition, inner))) items.push_back(item);
      return Flow::kNormal;
    });
  }
  const Value list = make_sequence(context_, SequenceKind::kList, std::move(items));
  return *list.get<SequencePtr>();
}

Evaluator::Flow Evaluator::run_for(const For& statement, Scope& scope, TextBuilder& out) {
  auto loop = std::make_shared<Loop>();
  loop->items = loop_items(statement, scope);
  const size_t count = loop->items->items.size();
  if (count == 0) {
    return in_scope(scope, [&](Scope& inner) { return execute(statement.otherwise, inner, out); });
  }
  for (size_t i = 0; i < count; ++i) {
    context_.step();
    loop->index = i;
    const Flow flow = in_scope(scope, [&](Scope& inner) {
      inner.set("loop", loop);
      assign(statement.target, loop->items->items[i], inner);
      return execute(statement.body, inner, out);
    });
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::run_with(const With& statement, Scope& scope, TextBuilder& out) {
  return in_scope(scope, [&](Scope& inner) {
    for (const auto& [target, value] : statement.variables) {
      assign(target, evaluate(*value, scope), inner);
    }
    return execute(statement.body, inner, out);
  });
}

void Evaluator::run_call_block(const CallBlock& statement, Scope& scope, TextBuilder& out) {
  const CallOf& node = std::get<CallOf>(statement.call->node);
  const Value callee = evaluate(*node.callee, scope);
  Call call{context_, {}, {}, {}, {}};
  add_arguments(call, node.arguments, scope);
  call.kwargs.emplace_back("caller", define_macro(*statement.caller, scope));
  write(out, call_value(callee, call));
}

Value Evaluator::block_text(const Block& body, const Expression* filters, Scope& scope) {
  TextBuilder captured(context_);
  Value text;
  in_scope(scope, [&](Scope& inner) {
    const Flow flow = execute(body, inner, captured);
    text = captured.finish();
    if (filters) text = apply_filters(*filters, text, inner);
    return flow;
  });
  return text;
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.items.empty()) {
    const SequencePtr values = iterate(context_, value);
    const size_t want = target.items.size(), got = values->items.size();
    if (want != got) {
      throw RenderError(std::string(got < want ? "not enough" : "too many") +
                        " values to unpack (expected " + std::to_string(want) + ", got " +
                        std::to_string(got) + ")");
    }
    for (size_t i = 0; i < want; ++i) assign(target.items[i], values->items[i], scope);
  } else if (target.attribute.empty()) {
    scope.set(target.name, value);
  } else {
    const Value* found = scope.find(target.name);
    const auto* ns = found ? found->get<NamespacePtr>() : nullptr;
    if (!ns) throw RenderError("cannot assign attribute on non-namespace object");
    (*ns)->attributes[target.attribute] = value;
  }
}

void Evaluator::write(TextBuilder& out, const Value& value) {
  out.append(to_text(context_, value));
  check_output(out);
}

void Evaluator::check_output(const TextBuilder& out) const {
  if (static_cast<int64_t>(out.size()) > context_.limits().output_bytes_max) {
    throw RenderError("output_bytes_max: more than " +
                      std::to_string(context_.limits().output_bytes_max) + " bytes of output");
  }
}

}  // namespace baton::jinja
