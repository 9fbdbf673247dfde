// The second half of ExpressionParser: what follows an operand (attributes, items, calls, filters,
// tests).
#include "model/text/jinja_expression_parser.h"

namespace baton::jinja {
ExpressionPtr ExpressionParser::postfix(ExpressionPtr operand) {
  while (true) {
    const int line = tokens_.line();
    if (tokens_.is_operator(".")) {
      tokens_.next();
      if (tokens_.is(TokenKind::kInteger)) {
        ExpressionPtr key = number(tokens_.next());
        operand = make_expression(line, Subscript{std::move(operand), std::move(key)});
      } else {
        const Token name = tokens_.expect(TokenKind::kName, "a name after '.'");
        operand = make_expression(line, AttributeOf{std::move(operand), name.text});
      }
    } else if (tokens_.is_operator("[")) {
      operand = subscript(std::move(operand));
    } else if (tokens_.is_operator("(")) {
      operand = make_expression(line, CallOf{std::move(operand), arguments()});
    } else {
      return operand;
    }
    count_operator();
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr operand) {
  while (true) {
    const int line = tokens_.line();
    if (tokens_.is_operator("|")) {
      operand = filters(std::move(operand));
    } else if (tokens_.is_name("is")) {
      operand = test(std::move(operand));
    } else if (tokens_.is_operator("(")) {
      operand = make_expression(line, CallOf{std::move(operand), arguments()});
    } else {
      return operand;
    }
    count_operator();
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const int line = tokens_.next().line;
  SliceOf range;
  if (!tokens_.is_operator(":")) range.start = expression();
  if (!tokens_.is_operator(":")) {
    if (tokens_.is_operator(",")) tokens_.fail("expected one item in [ ]");
    tokens_.expect_operator("]");
    return make_expression(line, Subscript{std::move(object), std::move(range.start)});
  }
  tokens_.next();
  range.object = std::move(object);
  const auto at_end = [&] { return tokens_.is_operator("]") || tokens_.is_operator(":"); };
  if (!at_end()) range.stop = expression();
  if (tokens_.skip_operator(":") && !at_end()) range.step = expression();
  tokens_.expect_operator("]");
  return make_expression(line, std::move(range));
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.expect(TokenKind::kName, "a name").text;
  while (tokens_.skip_operator(".")) name += "." + tokens_.expect(TokenKind::kName, "a name").text;
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool starts_inline) {
  while (starts_inline || tokens_.is_operator("|")) {
    if (!starts_inline) tokens_.next();
    starts_inline = false;
    count_operator();
    const int line = tokens_.line();
    Filter filter{std::move(input), dotted_name(), {}};
    if (tokens_.is_operator("(")) filter.arguments = arguments();
    input = make_expression(line, std::move(filter));
  }
  return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const int line = tokens_.next().line;
  const bool is_negated = tokens_.skip_name("not");
  Test test{std::move(input), dotted_name(), {}, is_negated};
  const bool starts_argument = tokens_.is(TokenKind::kName) || tokens_.is(TokenKind::kString) ||
                               tokens_.is(TokenKind::kInteger) || tokens_.is(TokenKind::kFloat) ||
                               tokens_.is_operator("[") || tokens_.is_operator("{");
  if (tokens_.is_operator("(")) {
    test.arguments = arguments();
  } else if (starts_argument && !tokens_.is_name("else") && !tokens_.is_name("or") &&
             !tokens_.is_name("and")) {
    if (tokens_.is_name("is")) tokens_.fail("You cannot chain multiple tests with is");
    // Without parentheses: one operand, as in `x is divisibleby 3`.
    test.arguments.positional.push_back(postfix(primary()));
  }
  return make_expression(line, std::move(test));
}

Arguments ExpressionParser::arguments() {
  tokens_.expect_operator("(");
  Arguments out;
  bool is_first = true;
  while (!tokens_.is_operator(")")) {
    if (!std::exchange(is_first, false)) {
      tokens_.expect_operator(",");
      if (tokens_.is_operator(")")) break;
    }
    if (out.named_rest) tokens_.fail("expected no argument after **");
    if (tokens_.skip_operator("*")) {
      if (out.rest) tokens_.fail("expected one * argument");
      out.rest = expression();
    } else if (tokens_.skip_operator("**")) {
      out.named_rest = expression();
    } else if (tokens_.is(TokenKind::kName) && tokens_.is_operator_ahead("=")) {
      std::string name = tokens_.next().text;
      tokens_.next();
      out.named.emplace_back(std::move(name), expression());
    } else {
      if (!out.named.empty() || out.rest) {
        tokens_.fail("expected a keyword argument after a keyword argument");
      }
      out.positional.push_back(expression());
    }
  }
  tokens_.expect_operator(")");
  return out;
}

}  // namespace baton::jinja
