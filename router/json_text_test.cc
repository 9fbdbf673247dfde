#include "router/json_text.h"

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "router/json_fields.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Text with every line end that is not a control character, and neighbours of theirs that are not.
const std::string kText =
    "a\xC2\x85"
    "b\xE2\x80\xA8"
    "c\xE2\x80\xA9"
    "d\xC2\xA0\xE2\x82\xAC\xC2";
const std::string kValid = kText.substr(0, kText.size() - 1);

TEST_CASE("a line end of Unicode cut a stream's event in two for clients that split lines") {
  std::string quoted;
  append_json_string(quoted, kValid);
  CHECK(quoted == "\"a\\u0085b\\u2028c\\u2029d\xC2\xA0\xE2\x82\xAC\"");
  CHECK(Json::parse(quoted) == kValid);

  const Json value{{"text", kValid}, {"list", {kValid, 1}}};
  const std::string dumped = dump_json(value);
  CHECK(dumped.find("\xC2\x85") == std::string::npos);
  CHECK(dumped.find("\xE2\x80\xA8") == std::string::npos);
  CHECK(dumped.find("\xE2\x80\xA9") == std::string::npos);
  CHECK(Json::parse(dumped) == value);
}

TEST_CASE("a long list of token ids is packed as the prompt, and nowhere else") {
  const auto list_of = [](int32_t count) {
    Json list = Json::array();
    for (int32_t i = 0; i < count; ++i) list.push_back(static_cast<uint64_t>(1000 * i));
    return list;
  };
  const auto parsed = [](const Json& prompt) {
    return parse_json_object(Json{{"stop_token_ids", prompt}, {"prompt", prompt}}.dump(), 8);
  };
  const Json ids = list_of(300), few = list_of(255);
  const Result<Json> one = parsed(ids);
  REQUIRE(one.ok());
  CHECK((*one)["stop_token_ids"] == ids);
  const auto packed = packed_ids((*one)["prompt"]);
  REQUIRE(packed);
  CHECK(Json(std::vector<uint64_t>(packed->begin(), packed->end())) == ids);
  CHECK(shown((*one)["prompt"]) == "a list of 300");

  const Result<Json> several = parsed({ids, few, "text", ids});
  REQUIRE(several.ok());
  const Json& prompt = (*several)["prompt"];
  CHECK(prompt.size() == 4);
  CHECK(packed_ids(prompt[0])->size() == 300);
  CHECK(prompt[1] == few);
  CHECK(prompt[2] == "text");
  CHECK(packed_ids(prompt[3])->back() == 299'000);

  for (const Json& other : {Json(-1), Json(int64_t{1} << 31), Json(1.5), Json("7")}) {
    Json mixed = ids;
    mixed[299] = other;
    const Result<Json> plain = parsed(mixed);
    REQUIRE(plain.ok());
    CHECK((*plain)["prompt"] == mixed);
  }
}

// Whatever is done to a text, it parses to what nlohmann's parser makes of it, or not at all.
TEST_CASE("a body is read as JSON's other parser reads it") {
  std::mt19937_64 random(std::random_device{}());
  const uint64_t seed = random();
  random.seed(seed);
  CAPTURE(seed);
  const std::vector<std::string> texts = {
      R"({"prompt":[1,2,3,100000,-1],"temperature":0.7,"n":1,"stream":true,"user":null,"a":{"b":[]}})",
      R"({"messages":[{"role":"user","content":"caf\u00e9 \ud83d\ude00 \udc00 \ud800"}],"a":1,"a":2})",
      R"({"x":[0,-0,1e3,1.5e-7,18446744073709551615,18446744073709551616,-9223372036854775808]})",
      "{\"k\":\"\xC3\xA9\xE2\x80\xA8\", \"z\" : [ [ ], {} , \"\\n\\/\" ] }"};
  int32_t valid = 0;
  for (int32_t i = 0; i < 20000; ++i) {
    std::string text = texts[random() % texts.size()];
    for (uint64_t changes = random() % 3; changes > 0; --changes) {
      static constexpr std::string_view kBytes = "0123456789eE+-.,:[]{}\"\\ud8ctrfaln \xC3\x80\n";
      text[random() % text.size()] = kBytes[random() % kBytes.size()];
    }
    CAPTURE(text);
    const Json wanted = Json::parse(text, nullptr, false);
    const Result<Json> got = parse_json_object(text, 32);
    if (!got.ok()) {
      if (wanted.is_object()) FAIL_CHECK(got.status().message());
      continue;
    }
    ++valid;
    // dump() tells 1 from 1.0, which == does not.
    if (wanted.is_discarded() || got->dump() != wanted.dump()) FAIL_CHECK(got->dump());
  }
  CHECK(valid > 1000);
}

// The fast parser ends its depth elsewhere and counts members itself: what a body may be must not
// depend on which of the two reads it.
TEST_CASE("depth and members of a body have one limit each") {
  for (const std::string tail : {"", ", \"half\": \"\\ud800\""}) {  // for one parser, the other
    const auto parsed = [&](const std::string& value) {
      return parse_json_object("{\"a\": " + value + tail + "}", 8);
    };
    for (const std::string inner : {"", "1", "\"x\""}) {
      const bool valid = tail.empty();
      CHECK(parsed(std::string(7, '[') + inner + std::string(7, ']')).ok() == valid);
      const auto deep = parsed(std::string(8, '[') + inner + std::string(8, ']'));
      CHECK(deep.status().message().find("deeper than 8 levels") != std::string::npos);
    }
    for (const int32_t count : {1023, 1024, 1025}) {
      std::string members;
      for (int32_t i = 0; i < count; ++i)
        members += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
      const auto many = parsed("{" + members + "}");
      CHECK(many.ok() == (count <= 1024 && tail.empty()));
      if (count > 1024)
        CHECK(many.status().message().find("more than 1024 members") != std::string::npos);
    }
  }
}

TEST_CASE("text without line ends is written as it is") {
  CHECK(dump_json(Json{{"text", "\xC3\xA9 \xE2\x82\xAC"}}) ==
        "{\"text\":\"\xC3\xA9 \xE2\x82\xAC\"}");
  CHECK(dump_json(Json("")) == "\"\"");
}

TEST_CASE("bytes that are not UTF-8 do not stop an answer") {
  CHECK(Json::parse(dump_json(Json(kText))) == kValid + "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace baton
