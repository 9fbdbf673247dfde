// Runs a syntax tree: one Evaluator a render, used by its thread only. Errors are RenderError;
// line() says where.
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "model/text/jinja_ast.h"

namespace baton::jinja {

// Variables of a block. Names are views of the tree's own strings.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  const Value* find(std::string_view name) const;  // here or further out; null if there is none
  void set(std::string_view name, Value value);    // here
  void clear() { variables_.clear(); }

  // A macro was defined in here: this scope and those around it must outlive their blocks.
  void keep();
  bool is_kept() const { return is_kept_; }

 private:
  Scope* const parent_;
  bool is_kept_ = false;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

class Evaluator {
 public:
  // `variables`: the template's context. Both outlive the evaluator.
  Evaluator(RenderContext& context, const Dict& variables);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  void run(const Block& program, TextBuilder& out) { execute(program, root_, out); }
  int line() const { return line_; }

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // ---- Statements (jinja_statements.cc) ----
  Flow execute(const Block& block, Scope& scope, TextBuilder& out);
  Flow execute(const Statement& statement, Scope& scope, TextBuilder& out);
  Flow run_if(const If& statement, Scope& scope, TextBuilder& out);
  Flow run_for(const For& statement, Scope& scope, TextBuilder& out);
  SequencePtr loop_items(const For& statement, Scope& scope);
  Flow run_with(const With& statement, Scope& scope, TextBuilder& out);
  void run_call_block(const CallBlock& statement, Scope& scope, TextBuilder& out);
  Value block_text(const Block& body, const Expression* filters, Scope& scope);
  void assign(const Target& target, const Value& value, Scope& scope);
  void write(TextBuilder& out, const Value& value);
  void check_output(const TextBuilder& out) const;
  // Runs `body(scope)` in a scope of its own.
  template <typename Body>
  Flow in_scope(Scope& parent, Body body);

  // ---- Expressions (jinja_evaluator.cc) ----
  Value evaluate(const Expression& expression, Scope& scope);
  Value evaluate_or_none(const ExpressionPtr& expression, Scope& scope);  // None for null
  Value visit(const Literal& node, Scope& scope);
  Value visit(const Name& node, Scope& scope);
  Value visit(const SequenceLiteral& node, Scope& scope);
  Value visit(const DictLiteral& node, Scope& scope);
  Value visit(const AttributeOf& node, Scope& scope);
  Value visit(const Subscript& node, Scope& scope);
  Value visit(const SliceOf& node, Scope& scope);
  Value visit(const CallOf& node, Scope& scope);
  Value visit(const Filter& node, Scope& scope);
  Value visit(const Test& node, Scope& scope);
  Value visit(const Negation& node, Scope& scope);
  Value visit(const Not& node, Scope& scope);
  Value visit(const Binary& node, Scope& scope);
  Value visit(const Logical& node, Scope& scope);
  Value visit(const Comparison& node, Scope& scope);
  Value visit(const Concatenation& node, Scope& scope);
  Value visit(const Conditional& node, Scope& scope);
  Value apply_filter(const Filter& filter, Value input, Scope& scope);
  Value apply_filters(const Expression& filters, const Value& input, Scope& scope);

  // ---- Calls (jinja_calls.cc) ----
  void add_arguments(Call& call, const Arguments& arguments, Scope& scope);
  Value call_value(const Value& callee, Call& call);
  Value call_macro(const Callable& callable, Call& call);
  void bind_parameters(const MacroDefinition& macro, Call& call, Scope& scope);
  void bind_special_names(const MacroDefinition& macro, Call& call, Scope& scope);
  Value define_macro(const MacroDefinition& definition, Scope& scope);

  RenderContext& context_;
  const Dict& variables_;
  Scope root_;
  std::deque<std::unique_ptr<Scope>> kept_scopes_;  // macros point into them
  std::vector<Charge> kept_charges_;
  int line_ = 0;
};

template <typename Body>
Evaluator::Flow Evaluator::in_scope(Scope& parent, Body body) {
  auto scope = std::make_unique<Scope>(&parent);
  // Also on the way out of an exception: a macro may still point here.
  struct Keeper {
    Evaluator& evaluator;
    std::unique_ptr<Scope>& scope;
    ~Keeper() {
      if (scope->is_kept()) evaluator.kept_scopes_.push_back(std::move(scope));
    }
  } keeper{*this, scope};
  return body(*scope);
}

}  // namespace baton::jinja
