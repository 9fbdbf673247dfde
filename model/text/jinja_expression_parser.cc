#include "model/text/jinja_expression_parser.h"

#include <cstdlib>

namespace baton::jinja {
namespace {

// A tree is at most this deep: brackets nest, and each operator or postfix of one expression may
// add a level.
constexpr int kNestingMax = 100;
constexpr int kOperatorsMax = 500;

}  // namespace

class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) {
    if (parser_.depth_ == 0) parser_.operator_count_ = 0;
    if (++parser_.depth_ > kNestingMax) {
      throw SyntaxError(parser_.tokens_.line(), "an expression nested deeper than 100 levels");
    }
  }
  ~Nesting() { --parser_.depth_; }

 private:
  ExpressionParser& parser_;
};

void ExpressionParser::count_operator() {
  if (++operator_count_ > kOperatorsMax) {
    throw SyntaxError(tokens_.line(), "an expression of more than 500 operators");
  }
}

void ExpressionParser::note_name(const std::string& name) {
  for (MacroDefinition* macro : open_macros_) {
    macro->uses_varargs = macro->uses_varargs || name == "varargs";
    macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
    macro->uses_caller = macro->uses_caller || name == "caller";
  }
}

ExpressionPtr ExpressionParser::expression(bool with_conditional) {
  const Nesting nesting(*this);
  return with_conditional ? conditional() : logical_or();
}

bool ExpressionParser::is_tuple_end() const {
  return tokens_.is(TokenKind::kVariableEnd) || tokens_.is(TokenKind::kBlockEnd) ||
         tokens_.is_operator(")");
}

ExpressionPtr ExpressionParser::tuple(bool with_conditional, bool in_parentheses) {
  const int line = tokens_.line();
  SequenceLiteral items{SequenceKind::kTuple, {}};
  bool has_comma = false;
  while (!is_tuple_end()) {
    items.items.push_back(expression(with_conditional));
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  if (!has_comma && items.items.size() == 1) return std::move(items.items[0]);
  if (items.items.empty() && !in_parentheses) tokens_.fail("expected an expression");
  return make_expression(line, std::move(items));
}

ExpressionPtr ExpressionParser::conditional() {
  const int line = tokens_.line();
  ExpressionPtr then = logical_or();
  while (tokens_.skip_name("if")) {
    count_operator();
    ExpressionPtr condition = logical_or();
    ExpressionPtr otherwise;
    if (tokens_.skip_name("else")) otherwise = expression();
    then = make_expression(
        line, Conditional{std::move(condition), std::move(then), std::move(otherwise)});
  }
  return then;
}

ExpressionPtr ExpressionParser::logical_or() {
  ExpressionPtr left = logical_and();
  while (tokens_.is_name("or")) {
    const int line = tokens_.next().line;
    count_operator();
    left = make_expression(line, Logical{false, std::move(left), logical_and()});
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_and() {
  ExpressionPtr left = logical_not();
  while (tokens_.is_name("and")) {
    const int line = tokens_.next().line;
    count_operator();
    left = make_expression(line, Logical{true, std::move(left), logical_not()});
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_not() {
  if (!tokens_.is_name("not")) return comparison();
  const Nesting nesting(*this);
  const int line = tokens_.next().line;
  return make_expression(line, Not{logical_not()});
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = tokens_.line();
  Comparison chain{sum(), {}};
  constexpr std::pair<std::string_view, CompareOperator> kSymbols[] = {
      {"==", CompareOperator::kEqual},  {"!=", CompareOperator::kNotEqual},
      {"<", CompareOperator::kLess},    {"<=", CompareOperator::kLessEqual},
      {">", CompareOperator::kGreater}, {">=", CompareOperator::kGreaterEqual}};
  const auto read_operator = [&](CompareOperator& op) {
    for (const auto& [symbol, meaning] : kSymbols) {
      op = meaning;
      if (tokens_.skip_operator(symbol)) return true;
    }
    op = CompareOperator::kIn;
    if (tokens_.skip_name("in")) return true;
    op = CompareOperator::kNotIn;
    return tokens_.is_name("not") && tokens_.is_name_ahead("in") &&
           (tokens_.next(), tokens_.next(), true);
  };
  for (CompareOperator op{}; read_operator(op);) {
    count_operator();
    chain.rest.emplace_back(op, sum());
  }
  return chain.rest.empty() ? std::move(chain.first) : make_expression(line, std::move(chain));
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const Token token = tokens_.next();
    count_operator();
    const auto op = token.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    left = make_expression(token.line, Binary{op, std::move(left), concatenation()});
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = tokens_.line();
  Concatenation items;
  items.items.push_back(product());
  while (tokens_.skip_operator("~")) items.items.push_back(product());
  return items.items.size() == 1 ? std::move(items.items[0])
                                 : make_expression(line, std::move(items));
}

ExpressionPtr ExpressionParser::product() {
  constexpr std::pair<std::string_view, BinaryOperator> kSymbols[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  ExpressionPtr left = power();
  for (size_t i = 0; i < std::size(kSymbols);) {
    const int line = tokens_.line();
    if (!tokens_.skip_operator(kSymbols[i].first)) {
      ++i;
      continue;
    }
    count_operator();
    left = make_expression(line, Binary{kSymbols[i].second, std::move(left), power()});
    i = 0;
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (tokens_.is_operator("**")) {
    const int line = tokens_.next().line;
    count_operator();
    left = make_expression(line, Binary{BinaryOperator::kPower, std::move(left), unary()});
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = tokens_.line();
  ExpressionPtr operand;
  if (tokens_.skip_operator("-")) {
    operand = make_expression(line, Negation{unary(false), false});
  } else if (tokens_.skip_operator("+")) {
    operand = make_expression(line, Negation{unary(false), true});
  } else {
    operand = primary();
  }
  operand = postfix(std::move(operand));
  return with_filters ? filters_and_tests(std::move(operand)) : std::move(operand);
}

ExpressionPtr ExpressionParser::number(const Token& token) {
  if (token.kind == TokenKind::kFloat) {
    return make_expression(token.line, Literal{std::strtod(token.text.c_str(), nullptr)});
  }
  const char prefix = token.text.size() > 2 ? token.text[1] : ' ';
  const int base = prefix == 'x' || prefix == 'X'   ? 16
                   : prefix == 'o' || prefix == 'O' ? 8
                   : prefix == 'b' || prefix == 'B' ? 2
                                                    : 10;
  try {
    size_t used = 0;
    const std::string digits = base == 10 ? token.text : token.text.substr(2);
    const int64_t value = std::stoll(digits, &used, base);
    if (used == digits.size()) return make_expression(token.line, Literal{Value(value)});
  } catch (const std::exception&) {
    // Reported below, with the line.
  }
  throw SyntaxError(token.line, "'" + token.text + "' is no integer of 64 bits");
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = tokens_.current();
  if (token.kind == TokenKind::kName) {
    tokens_.next();
    if (token.text == "true" || token.text == "True")
      return make_expression(token.line, Literal{true});
    if (token.text == "false" || token.text == "False")
      return make_expression(token.line, Literal{false});
    if (token.text == "none" || token.text == "None")
      return make_expression(token.line, Literal{None{}});
    note_name(token.text);
    return make_expression(token.line, Name{token.text});
  }
  if (token.kind == TokenKind::kString) {
    std::string value;
    while (tokens_.is(TokenKind::kString)) value += tokens_.next().text;
    return make_expression(token.line, Literal{make_constant_text(std::move(value))});
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) {
    return number(tokens_.next());
  }
  if (tokens_.skip_operator("(")) {
    ExpressionPtr inner = tuple(true, true);
    tokens_.expect_operator(")");
    return inner;
  }
  if (tokens_.is_operator("[")) return list_literal();
  if (tokens_.is_operator("{")) return dict_literal();
  tokens_.fail("expected an expression");
}

ExpressionPtr ExpressionParser::list_literal() {
  const int line = tokens_.next().line;
  SequenceLiteral list;
  while (!tokens_.is_operator("]")) {
    if (!list.items.empty()) tokens_.expect_operator(",");
    if (tokens_.is_operator("]")) break;
    list.items.push_back(expression());
  }
  tokens_.expect_operator("]");
  return make_expression(line, std::move(list));
}

ExpressionPtr ExpressionParser::dict_literal() {
  const int line = tokens_.next().line;
  DictLiteral dict;
  while (!tokens_.is_operator("}")) {
    if (!dict.entries.empty()) tokens_.expect_operator(",");
    if (tokens_.is_operator("}")) break;
    ExpressionPtr key = expression();
    tokens_.expect_operator(":");
    dict.entries.emplace_back(std::move(key), expression());
  }
  tokens_.expect_operator("}");
  return make_expression(line, std::move(dict));
}

}  // namespace baton::jinja
