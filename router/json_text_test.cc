#include "router/json_text.h"

#include <nlohmann/json.hpp>
#include <string>

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
