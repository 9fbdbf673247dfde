// The parser's view of the tokens: one token ahead, and what is wanted next.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/text/jinja_lexer.h"

namespace baton::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const {
    return is_token(current(), TokenKind::kOperator, text);
  }
  bool is_name(std::string_view text) const { return is_token(current(), TokenKind::kName, text); }
  bool is_name_ahead(std::string_view text) const {
    return is_token(ahead(), TokenKind::kName, text);
  }
  bool is_operator_ahead(std::string_view text) const {
    return is_token(ahead(), TokenKind::kOperator, text);
  }

  Token next() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_operator(std::string_view text) { return is_operator(text) && (next(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (next(), true); }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail("expected '" + std::string(text) + "'");
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail("expected '" + std::string(text) + "'");
  }
  Token expect(TokenKind kind, const char* what) {
    if (!is(kind)) fail(std::string("expected ") + what);
    return next();
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw SyntaxError(line(), wanted + ", got " + description());
  }

 private:
  static bool is_token(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  std::string description() const {
    switch (current().kind) {
      case TokenKind::kText:
        return "template data";
      case TokenKind::kVariableBegin:
        return "'{{'";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return "'" + current().text + "'";
    }
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace baton::jinja
