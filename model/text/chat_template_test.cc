// What the comparison with jinja2 (tests/text/template_equivalence.py) cannot see: marks of user
// text, limits, messages.
#include "model/text/chat_template.h"

#include <nlohmann/json.hpp>

#include "tests/doctest.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

Json with_message(const std::string& content) {
  return {{"messages", Json::array({{{"role", "user"}, {"content", content}}})},
          {"bos_token", "<s>"},
          {"words", Json::array({"x", "y"})}};
}

std::string render(const std::string& source, const Json& context = with_message("hi")) {
  const auto spans = ChatTemplate(source).render(context, 0);
  return spans.ok() ? concatenate(*spans) : spans.status().to_string();
}

// The user's text in [ ], the rest as it is.
std::string marked(const std::string& source, const std::string& content) {
  const auto spans = ChatTemplate(source).render(with_message(content), 0);
  if (!spans.ok()) return spans.status().to_string();
  std::string out;
  for (const TextSpan& span : *spans) out += span.parse_special ? span.text : "[" + span.text + "]";
  return out;
}

std::string error_of(const std::string& source, TemplateLimits limits) {
  const auto spans = ChatTemplate(source, limits).render(with_message("hi"), 0);
  return spans.ok() ? "rendered" : spans.status().message();
}

TEST_CASE("what a user wrote comes back in spans without control tokens") {
  CHECK(marked("{{ bos_token }}<|im_start|>{{ messages[0].content }}<|im_end|>", "<|im_end|>") ==
        "<s><|im_start|>[<|im_end|>]<|im_end|>");
  CHECK(marked("{{ '<a>' + messages[0].role }}", "") == "<a>[user]");
}

TEST_CASE("marks survive the work on text") {
  const std::string head = "{% set c = messages[0].content %}";
  CHECK(marked(head + "{{ ('<' ~ c + '>')|trim }}", " x ") == "<[ x ]>");
  CHECK(marked(head + "{{ c|trim|upper }}", " xß ") == "[XSS]");
  CHECK(marked(head + "{{ (c + '|t')[1:-1] }}", "äbc") == "[bc]|");
  CHECK(marked(head + "{{ (c + 't')[::-1] }}", "ab") == "t[ba]");
  CHECK(marked(head + "{{ c.split(',')|join('-') }}", "a,b") == "[a]-[b]");
  CHECK(marked(head + "{{ 'a-b'.replace('-', c) }}", "<u>") == "a[<u>]b");
  CHECK(marked(head + "{{ c.replace('x', '<t>') }}", "axb") == "[a]<t>[b]");
  CHECK(marked(head + "{{ c|tojson }}", "a\"b") == "\"[a\\\"b]\"");
  CHECK(marked(head + "{{ [c]|string }}", "é") == "['[é]']");
  CHECK(marked(head + "{{ '%s:%5s'|format(c, 'k') }}", "v") == "[v]:    k");
  CHECK(marked(head + "{{ '{0}:{0:>3}'.format(c) }}", "v") == "[v]:  [v]");
  CHECK(marked(head + "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(c)|indent(2, true) }}",
               "a\nb") == "  <[a]\n  [b]>");
  CHECK(marked(head + "{% set b %}<{{ c }}>{% endset %}{% filter upper %}{{ b }}{% endfilter %}",
               "a") == "<[A]>");
  CHECK(marked(head + "{% for x in c %}{{ x }}.{% endfor %}", "ab") == "[a].[b].");
  CHECK(marked(head + "{% set ns = namespace(x=c) %}{{ ns.x|title|center(5) }}", "a") == "  [A]  ");
}

TEST_CASE("raise_exception is the request's error, word for word") {
  const auto spans = ChatTemplate("{{ raise_exception('Roles must ' ~ 'alternate') }}")
                         .render(with_message("x"), 0);
  REQUIRE(!spans.ok());
  CHECK(spans.status().code() == Code::kInvalidArgument);
  CHECK(spans.status().message() == "Roles must alternate");
}

TEST_CASE("errors name the line") {
  CHECK(render("a\n\n{{ 1 + 'x' }}") ==
        "INVALID_ARGUMENT: chat template, line 3: unsupported operand type(s) for +: 'int' and "
        "'str'");
  CHECK(render("{{ nothing.at_all }}") ==
        "INVALID_ARGUMENT: chat template, line 1: 'nothing' is undefined");
  CHECK(render("{{ words.append('z') }}") ==
        "INVALID_ARGUMENT: chat template, line 1: access to attribute 'append' of 'list' object is "
        "unsafe.");
  CHECK_THROWS_WITH_AS(ChatTemplate("a\n{% if x %}"),
                       "chat template, line 2: expected 'endif', got the end of the template",
                       ConfigError);
  CHECK_THROWS_AS(ChatTemplate("{% include 'x' %}"), ConfigError);
  CHECK_THROWS_AS(ChatTemplate("{{ " + std::string(5000, '(') + " }}"), ConfigError);
  CHECK_THROWS_AS(ChatTemplate("{{ x" + std::string(5000, '+') + "x }}"), ConfigError);
}

TEST_CASE("limits are named") {
  const std::string loops =
      "{% for a in range(9999) %}{% for b in range(9999) %}{{ '' }}{% endfor %}{% endfor %}";
  CHECK(error_of(loops, {}).find("steps_max") != std::string::npos);
  CHECK(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {}).find("depth_max") !=
        std::string::npos);
  CHECK(error_of("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] "
                 "%}{% endfor %}",
                 {})
            .find("depth_max") != std::string::npos);
  CHECK(error_of("{{ 'x' * 2000 }}", {.output_bytes_max = 1000}).find("output_bytes_max") !=
        std::string::npos);
  for (const char* source :
       {"{{ 'x' * 10 ** 12 }}", "{{ ('x' * 10 ** 6).replace('x', 'y' * 10 ** 6) }}",
        "{{ [0] * 10 ** 12 }}", "{{ 'x'.center(10 ** 12) }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}"}) {
    CAPTURE(source);
    const std::string error = error_of(source, {.memory_bytes_max = 16 << 20});
    const bool is_named = error.find("memory_bytes_max") != std::string::npos ||
                          error.find("steps_max") != std::string::npos;
    CHECK(is_named);
  }
}

TEST_CASE(
    "a namespace that holds itself, and macros that outlive their block, end with the render") {
  CHECK(render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns] %}{{ "
               "ns.me.list|length }}") == "1");
  CHECK(render("{% set ns = namespace() %}{% for x in words %}{% macro m() %}{{ x }}{% endmacro %}"
               "{% set ns.m = m %}{% endfor %}{{ ns.m() }}") == "y");
}

TEST_CASE("one template renders the same twice, and time is UTC") {
  const ChatTemplate chat_template("{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}");
  for (int i = 0; i < 2; ++i) {
    const auto spans = chat_template.render(with_message("x"), 86'400 * 365);
    REQUIRE(spans.ok());
    CHECK(concatenate(*spans) == "01 Jan 1971x");
  }
}

}  // namespace
}  // namespace baton
