#include "model/text/regex.h"

#include "model/text/pretokenizer.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Words = std::vector<std::string>;

Words split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  PreTokenizerScratch scratch;
  const Status status = pre_tokenizer.split(text, &scratch);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return Words(scratch.pieces.begin(), scratch.pieces.end());
}

Words split_at(std::string_view pattern, SplitBehavior behavior, std::string_view text,
               bool invert = false) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add_split(pattern, behavior, invert, "test");
  return split(pre_tokenizer, text);
}

std::string refusal(std::string_view pattern) {
  try {
    Regex(pattern, "file: key");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("the five behaviours of a split") {
  const std::string_view text = "the-final--countdown";
  CHECK_EQ(split_at("-", SplitBehavior::kIsolated, text),
           Words{"the", "-", "final", "-", "-", "countdown"});
  CHECK_EQ(split_at("-", SplitBehavior::kRemoved, text), Words{"the", "final", "countdown"});
  CHECK_EQ(split_at("-", SplitBehavior::kMergedWithPrevious, text),
           Words{"the-", "final-", "-", "countdown"});
  CHECK_EQ(split_at("-", SplitBehavior::kMergedWithNext, text),
           Words{"the", "-final", "-", "-countdown"});
  CHECK_EQ(split_at("-", SplitBehavior::kContiguous, text),
           Words{"the", "-", "final", "--", "countdown"});
  CHECK_EQ(split_at("[a-z]+", SplitBehavior::kRemoved, text, /*invert=*/true),
           Words{"the", "final", "countdown"});
}

TEST_CASE("GPT-2's pattern leaves the last blank to the next word") {
  CHECK_EQ(split_at(kGpt2Pattern, SplitBehavior::kIsolated, "Hi there   you're 12 !?\n\n x  "),
           Words{"Hi", " there", "  ", " you", "'re", " 12", " !?", "\n\n", " x", "  "});
}

TEST_CASE("steps work on the pieces of the step before") {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add_split(R"(\p{N})", SplitBehavior::kIsolated, false, "test");
  pre_tokenizer.add_prefix_space();
  CHECK_EQ(split(pre_tokenizer, "ab12 c"), Words{" ab", " 1", " 2", " c"});
  CHECK_EQ(split(pre_tokenizer, ""), Words{});
}

TEST_CASE("classes mean what Oniguruma means by them") {
  CHECK_EQ(split_at(R"(\s)", SplitBehavior::kIsolated, "a\u180eb\u0085c"),
           Words{"a\u180eb", "\u0085", "c"});
  CHECK_EQ(split_at(R"([^\S\n]+)", SplitBehavior::kIsolated, "a \u3000\nb"),
           Words{"a", " \u3000", "\nb"});
  CHECK_EQ(split_at(R"((?i:'s))", SplitBehavior::kIsolated, "a'\u017fb"),
           Words{"a", "'\u017f", "b"});
  CHECK_EQ(split_at(R"(\w+)", SplitBehavior::kRemoved, "e\u0301_\u2160-"), Words{"-"});
  CHECK_EQ(split_at("^x", SplitBehavior::kIsolated, "x\nxx"), Words{"x", "\n", "x", "x"});
  CHECK_EQ(split_at(R"(\u0041\x42\x{43})", SplitBehavior::kIsolated, "zABCz"),
           Words{"z", "ABC", "z"});
}

TEST_CASE("patterns that the engines read differently are refused by name") {
  for (const char* pattern : {R"(\h)", R"(\bx)", R"([a-z&&[^b]])", R"([[:alpha:]])", R"((?<n>x))",
                              R"((?m:x))", R"(x{,3})", R"(x{2}+)", R"(\p{Emoji})", R"([\W])",
                              R"((*UTF)x)", R"(\)", R"(\p)", R"([a)", R"(x{2)", R"(\xZ)"}) {
    CAPTURE(pattern);
    CHECK_EQ(refusal(pattern).substr(0, 15), "file: key: got ");
  }
  CHECK_NE(refusal("(unclosed").find("does not compile"), std::string::npos);
  CHECK_NE(refusal("x*").find("matches the empty text"), std::string::npos);
  CHECK_EQ(refusal(R"([^\r\n\p{L}\p{N}]?+\p{L}++|\p{Han}{1,3}|\p{^Lu})"), "");
}

TEST_CASE("a limit of the matcher is an error with its name, never a wrong split") {
  const std::string blanks(10'000'000, ' ');
  PreTokenizerScratch scratch;
  for (const std::string_view pattern :
       {kGpt2Pattern, std::string_view(R"(\s*[\r\n]+|\s+(?!\S)|\S+)")}) {
    PreTokenizer pre_tokenizer;
    pre_tokenizer.add_split(pattern, SplitBehavior::kIsolated, false, "test");
    const Status status = pre_tokenizer.split(blanks + "x", &scratch);
    if (status.ok()) {  // a matcher may well manage: then all must be there
      REQUIRE_GE(scratch.pieces.size(), 2);
      CHECK_EQ(scratch.pieces[0].size(), blanks.size() - 1);
    } else {
      CHECK_NE(status.message().find("MATCHLIMIT"), std::string::npos);
    }
  }

  PreTokenizer nested;
  nested.add_split("(?:a|b)+c", SplitBehavior::kIsolated, false, "test");
  const Status stack = nested.split(std::string(4'000'000, 'a'), &scratch);
  CHECK_FALSE(stack.ok());
  CHECK_EQ(stack.code(), Code::kInvalidArgument);
  CHECK_NE(stack.message().find("LIMIT"), std::string::npos);
}

}  // namespace
}  // namespace baton
