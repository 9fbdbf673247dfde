#include "model/text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "model/text/jinja_expression_parser.h"
#include "model/text/jinja_lexer.h"

namespace baton::jinja {
namespace {

constexpr int kBlockNestingMax = 50;

class Parser {
 public:
  explicit Parser(std::string source)
      : tokens_(tokenize(std::move(source))), expressions_(tokens_) {}

  Block run() {
    Block block = statements({});
    if (!tokens_.is(TokenKind::kEnd)) tokens_.fail("unknown or misplaced tag");
    return block;
  }

 private:
  // Up to a tag that begins with one of `ends`, whose name becomes the current token; or up to the
  // end of the template.
  Block statements(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kBlockNestingMax) {
      throw SyntaxError(tokens_.line(), "blocks nested deeper than 50 levels");
    }
    Block block;
    while (!tokens_.is(TokenKind::kEnd)) {
      const int line = tokens_.line();
      if (tokens_.is(TokenKind::kText)) {
        block.push_back({line, TextOutput{tokens_.next().text}});
      } else if (tokens_.is(TokenKind::kVariableBegin)) {
        tokens_.next();
        block.push_back({line, Output{expressions_.tuple()}});
        tokens_.expect(TokenKind::kVariableEnd, "'}}'");
      } else {
        tokens_.expect(TokenKind::kBlockBegin, "'{%'");
        const bool is_end = std::any_of(ends.begin(), ends.end(),
                                        [&](std::string_view end) { return tokens_.is_name(end); });
        if (is_end) break;
        block.push_back(statement());
        tokens_.expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0 && tokens_.is(TokenKind::kEnd)) {
      tokens_.fail("expected '" + std::string(*(ends.end() - 1)) + "'");
    }
    --depth_;
    return block;
  }

  // The rest of the opening tag's end, the body, and the name of the closing tag.
  Block body(std::string_view end) {
    tokens_.expect(TokenKind::kBlockEnd, "'%}'");
    Block block = statements({end});
    tokens_.next();
    return block;
  }

  Statement statement() {
    const Token name = tokens_.expect(TokenKind::kName, "a tag's name");
    const int line = name.line;
    if (name.text == "if") return {line, if_statement()};
    if (name.text == "for") return {line, for_statement()};
    if (name.text == "set") return set_statement(line);
    if (name.text == "macro") return {line, macro_statement()};
    if (name.text == "call") return {line, call_statement()};
    if (name.text == "with") return {line, with_statement()};
    if (name.text == "filter") {
      ExpressionPtr filters = expressions_.filters(nullptr, true);
      return {line, FilterBlock{std::move(filters), body("endfilter")}};
    }
    if (name.text == "generation") return {line, Generation{body("endgeneration")}};
    if (name.text == "print") return {line, Output{expressions_.tuple()}};
    if (name.text == "break" || name.text == "continue") {
      if (loop_depth_ == 0) throw SyntaxError(line, "'" + name.text + "' outside of a loop");
      if (name.text == "break") return {line, Break{}};
      return {line, Continue{}};
    }
    throw SyntaxError(line, "unknown or unsupported tag '" + name.text + "'");
  }

  If if_statement() {
    If out;
    while (true) {
      ExpressionPtr condition = expressions_.tuple(false);
      tokens_.expect(TokenKind::kBlockEnd, "'%}'");
      out.branches.emplace_back(std::move(condition), statements({"elif", "else", "endif"}));
      if (!tokens_.skip_name("elif")) break;
    }
    if (tokens_.skip_name("else")) {
      tokens_.expect(TokenKind::kBlockEnd, "'%}'");
      out.otherwise = statements({"endif"});
    }
    tokens_.expect_name("endif");
    return out;
  }

  For for_statement() {
    For out;
    out.target = target_list();
    tokens_.expect_name("in");
    out.iterable = expressions_.tuple(false);
    if (tokens_.skip_name("if")) out.condition = expressions_.expression();
    if (tokens_.is_name("recursive")) tokens_.fail("recursive loops are not supported");
    tokens_.expect(TokenKind::kBlockEnd, "'%}'");
    ++loop_depth_;
    out.body = statements({"else", "endfor"});
    --loop_depth_;
    if (tokens_.skip_name("else")) {
      tokens_.expect(TokenKind::kBlockEnd, "'%}'");
      out.otherwise = statements({"endfor"});
    }
    tokens_.expect_name("endfor");
    return out;
  }

  Statement set_statement(int line) {
    Target target = target_list();
    if (tokens_.skip_operator("=")) return {line, Set{std::move(target), expressions_.tuple()}};
    if (!target.items.empty()) tokens_.fail("expected '='");
    ExpressionPtr filters = expressions_.filters(nullptr);
    return {line, SetBlock{std::move(target), std::move(filters), body("endset")}};
  }

  With with_statement() {
    With out;
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!out.variables.empty()) tokens_.expect_operator(",");
      Target target = single_target();
      tokens_.expect_operator("=");
      out.variables.emplace_back(std::move(target), expressions_.expression());
    }
    out.body = body("endwith");
    return out;
  }

  Macro macro_statement() {
    auto definition = std::make_unique<MacroDefinition>();
    definition->name = tokens_.expect(TokenKind::kName, "the macro's name").text;
    macro_parts(*definition, "endmacro", [&] { parameters(*definition); });
    return {std::move(definition)};
  }

  CallBlock call_statement() {
    auto caller = std::make_unique<MacroDefinition>();
    caller->name = "caller";
    ExpressionPtr call;
    macro_parts(*caller, "endcall", [&] {
      if (tokens_.is_operator("(")) parameters(*caller);
      call = expressions_.expression();
      if (!std::holds_alternative<CallOf>(call->node)) tokens_.fail("expected a call");
    });
    return {std::move(caller), std::move(call)};
  }

  template <typename Head>
  void macro_parts(MacroDefinition& definition, std::string_view end, Head head) {
    head();
    expressions_.open_macros().push_back(&definition);
    const int outer_loops = std::exchange(loop_depth_, 0);
    definition.body = body(end);
    loop_depth_ = outer_loops;
    expressions_.open_macros().pop_back();
  }

  void parameters(MacroDefinition& definition) {
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      if (!definition.parameters.empty()) tokens_.expect_operator(",");
      definition.parameters.push_back(tokens_.expect(TokenKind::kName, "a parameter").text);
      if (tokens_.skip_operator("=")) {
        definition.defaults.push_back(expressions_.expression());
      } else if (!definition.defaults.empty()) {
        tokens_.fail("expected a default value, as the parameter before has one");
      }
    }
    tokens_.expect_operator(")");
  }

  Target single_target() {
    if (tokens_.skip_operator("(")) {
      Target inner = target_list();
      tokens_.expect_operator(")");
      return inner;
    }
    const Token name = tokens_.expect(TokenKind::kName, "a name to assign to");
    for (std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name.text == reserved)
        throw SyntaxError(name.line, "can't assign to '" + name.text + "'");
    }
    Target target{name.text, {}, {}};
    if (tokens_.skip_operator(".")) {
      target.attribute = tokens_.expect(TokenKind::kName, "an attribute").text;
    }
    return target;
  }

  Target target_list() {
    if (++depth_ > kBlockNestingMax) tokens_.fail("expected fewer parentheses");
    Target first = single_target();
    --depth_;
    if (!tokens_.is_operator(",")) return first;
    Target list;
    list.items.push_back(std::move(first));
    while (tokens_.skip_operator(",")) {
      if (!tokens_.is(TokenKind::kName) && !tokens_.is_operator("(")) break;
      if (tokens_.is_name("in")) break;
      list.items.push_back(single_target());
    }
    return list;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Block parse_template(std::string source) {
  return Parser(std::move(source)).run();
}

}  // namespace baton::jinja
