#include "router/text_output.h"

#include <random>

#include "router/byte_tokenizer.h"

#include "tests/doctest.h"

namespace baton {
namespace {

const ByteTokenizer kTokenizer;

struct Answer {
  std::string text;
  bool stopped = false;
  int32_t tokens = 0;
};

// Feeds bytes as tokens; takes text after each if `stream`.
Answer run(const std::string& bytes, TextOutputOptions options, bool stream = true,
           FinishReason last = FinishReason::kLength, TokenId extra = -1) {
  TextOutput output(kTokenizer, std::make_shared<TextOutputOptions>(std::move(options)));
  Answer answer;
  std::vector<TokenId> ids;
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
  if (extra >= 0) ids.push_back(extra);
  for (size_t i = 0; i < ids.size(); ++i) {
    const FinishReason finish = i + 1 == ids.size() ? last : FinishReason::kNone;
    const bool more = output.push({.token = ids[i], .finish = finish});
    if (stream) answer.text += output.take_text();
    if (!more) break;
  }
  answer.text += output.take_text();
  answer.stopped = std::holds_alternative<std::string>(output.stop_reason());
  answer.tokens = output.tokens();
  return answer;
}

TEST_CASE("without stop strings all text comes at once") {
  CHECK(run("hello", {}).text == "hello");
  CHECK(run("h\xC3\xA9", {}).text == "hé");
}

TEST_CASE("a stop string is cut, and nothing of it leaks on the way") {
  const auto answer = run("keep >>>>>>> UPD more", {.stop = {">>>>>>> UPD"}});
  CHECK(answer.text == "keep ");
  CHECK(answer.stopped);
  CHECK(answer.tokens == 16);  // up to the one that completed it
  CHECK(run("keep >>> UPD more", {.stop = {">>>>>>> UPD"}}).text == "keep >>> UPD more");
}

TEST_CASE("what was held back is released when the choice ends otherwise") {
  const auto answer = run("text END", {.stop = {"ENDING"}});
  CHECK(answer.text == "text END");
  CHECK_FALSE(answer.stopped);
}

TEST_CASE("the stop that is complete first wins, and may stay in the text") {
  CHECK(run("xabcdy", {.stop = {"abcd", "bc"}}).text == "xa");
  CHECK(run("xabcdy", {.stop = {"abcd", "bc"}, .include_stop = true}).text == "xabc");
  CHECK(run("xabcy", {.stop = {"abc", "ab"}}).text == "x");
}

TEST_CASE("min_tokens puts stop strings off") {
  CHECK(run("a.b.c.", {.stop = {"."}, .min_tokens = 3}).text == "a.b");
}

TEST_CASE("EOS has no text, unless the stop is to be included") {
  CHECK(run("hi", {}, true, FinishReason::kStop, ByteTokenizer::kEos).text == "hi");
  CHECK(run("hi", {.skip_special_tokens = false}, true, FinishReason::kStop, ByteTokenizer::kEos)
            .text == "hi");
  CHECK(run("hi", {.include_stop = true, .skip_special_tokens = false}, true, FinishReason::kStop,
            ByteTokenizer::kEos)
            .text == "hi<eos>");
}

TEST_CASE("streamed text equals whole text, and has no stop string, for random ones") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto word = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    const std::string text = word(1 + random() % 30);
    const std::vector<std::string> stops = {word(2 + random() % 5), word(2 + random() % 5)};
    const Answer streamed = run(text, {.stop = stops}), whole = run(text, {.stop = stops}, false);
    CHECK(streamed.text == whole.text);
    CHECK(text.starts_with(streamed.text));
    for (const std::string& stop : stops) {
      CHECK(streamed.text.find(stop) == std::string::npos);
      if (text.find(stop) != std::string::npos) CHECK(streamed.stopped);
    }
  }
}

}  // namespace
}  // namespace baton
