// The expressions of a template; used by the statement parser (jinja_parser.cc).
#pragma once

#include <string>
#include <vector>

#include "model/text/jinja_ast.h"
#include "model/text/jinja_token_stream.h"

namespace baton::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr expression(bool with_conditional = true);
  // Several expressions with commas between them become a tuple.
  ExpressionPtr tuple(bool with_conditional = true, bool in_parentheses = false);
  // |filter|filter(...) applied to `input`; null input for blocks. `starts_inline`: the first has
  // no bar in front.
  ExpressionPtr filters(ExpressionPtr input, bool starts_inline = false);
  // Names read since the macro began, of those that change how a macro is called.
  void note_name(const std::string& name);
  std::vector<MacroDefinition*>& open_macros() { return open_macros_; }

 private:
  // Trees are walked by recursion, also by their destructors: both of these bound the depth.
  class Nesting;
  void count_operator();

  ExpressionPtr conditional();
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr primary();
  ExpressionPtr number(const Token& token);
  ExpressionPtr list_literal();
  ExpressionPtr dict_literal();
  ExpressionPtr postfix(ExpressionPtr operand);
  ExpressionPtr filters_and_tests(ExpressionPtr operand);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr test(ExpressionPtr input);
  Arguments arguments();
  std::string dotted_name();
  bool is_tuple_end() const;

  TokenStream& tokens_;
  int depth_ = 0;
  int operator_count_ = 0;  // in the outermost expression being read
  std::vector<MacroDefinition*> open_macros_;
};

}  // namespace baton::jinja
