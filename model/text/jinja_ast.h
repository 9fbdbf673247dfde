// The syntax tree of a template. Built once by the parser, then read by any number of renders at a
// time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/text/jinja_operators.h"
#include "model/text/jinja_value.h"

namespace baton::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
struct Statement;
using Block = std::vector<Statement>;

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest, named_rest;  // *rest, **named_rest; may be null
};

// ---- Expressions ----

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct SequenceLiteral {
  SequenceKind kind = SequenceKind::kList;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct AttributeOf {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, key;
};
struct SliceOf {
  ExpressionPtr object;
  ExpressionPtr start, stop, step;  // null where left out
};
struct CallOf {
  ExpressionPtr callee;
  Arguments arguments;
};
struct Filter {
  ExpressionPtr input;  // null in the filters of a block: the block's text
  std::string name;
  Arguments arguments;
};
struct Test {
  ExpressionPtr input;
  std::string name;
  Arguments arguments;
  bool is_negated = false;
};
struct Negation {
  ExpressionPtr operand;
  bool keeps_sign = false;  // unary plus
};
struct Not {
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op = BinaryOperator::kAdd;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and = false;
  ExpressionPtr left, right;
};
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};
struct Concatenation {
  std::vector<ExpressionPtr> items;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise may be null: undefined
};

struct Expression {
  int line = 0;
  std::variant<Literal, Name, SequenceLiteral, DictLiteral, AttributeOf, Subscript, SliceOf, CallOf,
               Filter, Test, Negation, Not, Binary, Logical, Comparison, Concatenation, Conditional>
      node;
};

template <typename Node>
ExpressionPtr make_expression(int line, Node node) {
  auto expression = std::make_unique<Expression>();
  expression->line = line;
  expression->node = std::move(node);
  return expression;
}

// ---- Statements ----

// What can be assigned to: a name, an attribute of a namespace, or a tuple of those.
struct Target {
  std::string name;
  std::string attribute;      // not empty: name.attribute
  std::vector<Target> items;  // not empty: a tuple
};

struct TextOutput {
  std::string text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, condition;  // condition may be null
  Block body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filters;  // may be null
  Block body;
};
struct FilterBlock {
  ExpressionPtr filters;
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
};
// {% generation %}: marks the assistant's text for training; here only a scope.
struct Generation {
  Block body;
};
struct Break {};
struct Continue {};

struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Block body;
  // Which of the special names the body reads: without that, extra arguments are errors.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};
struct Macro {
  std::unique_ptr<MacroDefinition> definition;
};
struct CallBlock {
  std::unique_ptr<MacroDefinition> caller;
  ExpressionPtr call;
};

struct Statement {
  int line = 0;
  std::variant<TextOutput, Output, If, For, Set, SetBlock, FilterBlock, With, Generation, Break,
               Continue, Macro, CallBlock>
      node;
};

}  // namespace baton::jinja
