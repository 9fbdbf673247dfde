// Template source to tokens, with jinja2's white space rules for trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/text/jinja_value.h"

namespace baton::jinja {

// Thrown while a template is read; the line is in the message. ChatTemplate makes a ConfigError of
// it.
class SyntaxError : public std::exception {
 public:
  SyntaxError(int line, const std::string& message)
      : message_("line " + std::to_string(line) + ": " + message) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

enum class TokenKind {
  kText,           // outside of tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // `text` is its value, escapes resolved
  kInteger,  // `text` are its digits
  kFloat,
  kOperator,  // `text` is the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

std::vector<Token> tokenize(std::string source);

}  // namespace baton::jinja
