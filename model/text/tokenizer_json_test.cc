#include "base/status.h"
#include "model/text/tokenizer.h"
#include "model/text/tokenizer_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::added_token;
using testing::ModelFolder;
using testing::refusal;
using testing::small_tokenizer_json;

constexpr int32_t kHello = 260;  // " hello"

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> load(const json& tokenizer_json) {
  const ModelFolder folder;
  folder.write("tokenizer.json", tokenizer_json);
  return load_tokenizer_json(folder.path());
}

json bos_template() {
  return {{"type", "TemplateProcessing"},
          {"single", json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                  {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
          {"pair", json::array()},
          {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {261}}, {"tokens", {"<s>"}}}}}}};
}

TEST_CASE("a small file is loaded and used") {
  json file = small_tokenizer_json();
  file["added_tokens"] = {added_token("<s>", true)};
  file["post_processor"] = bos_template();
  const auto tokenizer = load(file);
  CHECK_EQ(tokenizer->vocab_size(), 262);
  CHECK_EQ(tokenizer->encode(" hello<s>", {}).value(), Ids{261, kHello, 261});
  CHECK_EQ(tokenizer->encode(" hello", {.add_special_tokens = false}).value(), Ids{kHello});
  CHECK_EQ(tokenizer->token_name(kHello), "Ġhello");
  CHECK_EQ(tokenizer->token_bytes(kHello, false), " hello");
  CHECK_EQ(tokenizer->token_id("Ġhello"), kHello);
  CHECK_EQ(tokenizer->token_id("nothing"), -1);
  CHECK(tokenizer->is_special(261));
  CHECK_EQ(tokenizer->token_bytes(261, true), "");
  CHECK_EQ(decode(*tokenizer, {261, kHello, 261}, false), "<s> hello<s>");
  CHECK_EQ(decode(*tokenizer, {261, kHello, 261}, true), " hello");
  const auto invalid = tokenizer->encode("ab\xFF", {});
  CHECK_EQ(invalid.status().message(), "text: got invalid UTF-8 at byte 2 of 3, want UTF-8");
}

TEST_CASE("merges may be pairs, and a first line with the version is skipped") {
  json file = small_tokenizer_json();
  json pairs = json::array();
  for (const json& merge : file["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    const size_t blank = text.find(' ');
    pairs.push_back({text.substr(0, blank), text.substr(blank + 1)});
  }
  file["model"]["merges"] = pairs;
  CHECK_EQ(load(file)->encode(" hello", {}).value(), Ids{kHello});
  file = small_tokenizer_json();
  file["model"]["merges"].insert(file["model"]["merges"].begin(), "#version: 0.2");
  CHECK_EQ(load(file)->encode(" hello", {}).value(), Ids{kHello});
}

TEST_CASE("an added token that the model lacks gets the next free id") {
  json file = small_tokenizer_json();
  json high = added_token("<a>", true);
  high["id"] = 900;
  file["added_tokens"] = {high, added_token("<b>", false), added_token("Ġhello", false)};
  const auto tokenizer = load(file);
  CHECK_EQ(tokenizer->token_id("<a>"), 261);
  CHECK_EQ(tokenizer->token_id("<b>"), 262);
  CHECK_EQ(tokenizer->token_id("Ġhello"), kHello);
}

TEST_CASE("NFC comes after the raw added tokens and before the normalised ones") {
  json file = small_tokenizer_json();
  file["normalizer"] = {{"type", "NFC"}};
  json composed = added_token("\u00e9!", false);
  composed["normalized"] = true;
  file["added_tokens"] = {added_token("e\u0301?", false), composed};
  const auto tokenizer = load(file);
  CHECK_EQ(tokenizer->encode("e\u0301?e\u0301!", {}).value(), Ids{261, 262});
  CHECK_EQ(decode(*tokenizer, tokenizer->encode("e\u0301", {}).value(), false), "\u00e9");
}

TEST_CASE("all ids that end a generation are collected") {
  const ModelFolder folder;
  json file = small_tokenizer_json();
  file["added_tokens"] = {added_token("<s>", true), added_token("</s>", true)};
  folder.write("tokenizer.json", file);
  CHECK(load_tokenizer_json(folder.path())->eos_ids().empty());
  CHECK_EQ(load_tokenizer_json(folder.path())->bos_id(), -1);
  folder.write("tokenizer_config.json",
               json{{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}});
  folder.write("generation_config.json", json{{"eos_token_id", {7, 262}}, {"bos_token_id", 3}});
  folder.write("config.json",
               json{{"text_config", {{"eos_token_id", 9}}}, {"eos_token_id", nullptr}});
  const auto tokenizer = load_tokenizer_json(folder.path());
  CHECK_EQ(tokenizer->bos_id(), 261);
  CHECK_EQ(tokenizer->eos_ids(), Ids{262, 7, 9});
  folder.write("config.json", json{{"eos_token_id", 999}});
  CHECK_NE(refusal(folder).find("id of EOS: got 999, want an id below"), std::string::npos);
  folder.write("config.json", json{{"eos_token_id", "x"}});
  CHECK_NE(refusal(folder).find("config.json: eos_token_id: got \"x\", want an integer"),
           std::string::npos);
}

TEST_CASE("a file that is not there or not JSON is refused") {
  const ModelFolder folder;
  CHECK_NE(refusal(folder).find("tokenizer.json: got no readable file"), std::string::npos);
  folder.write("tokenizer.json", std::string("{\"model\": "));
  CHECK_NE(refusal(folder).find("not JSON"), std::string::npos);
  folder.write("tokenizer.json", json::array());
  CHECK_NE(refusal(folder).find("want an object"), std::string::npos);
}

// Changes one place (a JSON pointer) of a good file and expects a refusal with this text.
void check_refused(const char* pointer, const json& value, const std::string& want) {
  json file = small_tokenizer_json();
  file[json::json_pointer(pointer)] = value;
  const std::string message = refusal(file);
  CAPTURE(pointer);
  CAPTURE(message);
  CHECK_NE(message.find(want), std::string::npos);
}

TEST_CASE("an unknown component is refused with file, key, what is there and what can be") {
  check_refused("/model/type", "Unigram", "tokenizer.json: model.type: got \"Unigram\", want BPE");
  check_refused("/model/dropout", 0.1, "model.dropout: got 0.1, want null");
  check_refused("/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix: got \"</w>\"");
  check_refused("/normalizer", {{"type", "Lowercase"}}, "normalizer.type: got \"Lowercase\"");
  check_refused("/pre_tokenizer", nullptr, "pre_tokenizer: got nothing, want ByteLevel");
  check_refused("/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer.type: got \"Metaspace\"");
  check_refused("/pre_tokenizer/use_regex", 1,
                "pre_tokenizer.use_regex: got 1, want true or false");
  check_refused("/post_processor", {{"type", "BertProcessing"}}, "post_processor.type: got");
  check_refused("/decoder", {{"type", "WordPiece"}}, "decoder.type: got \"WordPiece\"");
  check_refused("/decoder", nullptr, "decoder: got nothing, want ByteLevel");
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "x\\h"}}},
                      {"behavior", "Sideways"},
                      {"invert", false}};
  json sequence = {{"type", "Sequence"},
                   {"pretokenizers", {split, small_tokenizer_json()["decoder"]}}};
  check_refused("/pre_tokenizer", sequence, "pretokenizers[0].behavior: got \"Sideways\"");
  sequence["pretokenizers"][0]["behavior"] = "Isolated";
  check_refused("/pre_tokenizer", sequence, "pretokenizers[0].pattern: got \"\\h\" in");
}

TEST_CASE("a malformed vocabulary is refused") {
  check_refused("/model/vocab", json::object(), "model.vocab: got {}");
  check_refused("/model/vocab/a", -1, "model.vocab[\"a\"]: got -1, want an integer from 0");
  check_refused("/model/vocab/a", 1e30, "model.vocab[\"a\"]: got 1e+30");
  check_refused("/model/vocab/a", 18446744073709551615u,
                "got 18446744073709551615, want an integer");
  check_refused("/model/vocab/new", 5, "does not have already");
  check_refused("/model/merges/0", "a b c", "model.merges[0]: got \"a b c\"");
  check_refused("/model/merges/0", {"a"}, "model.merges[0]: got [\"a\"]");
  check_refused("/model/merges/0", "a b", "\"ab\" is not in the vocabulary");
  check_refused("/model/merges", 3, "model.merges: got 3, want an array");
  json conflicting = {added_token("<a>", true), added_token("<a>", false)};
  check_refused("/added_tokens", conflicting, "want the same flags as in the token's first entry");
  json twice = bos_template();
  twice["single"].push_back(twice["single"][1]);
  check_refused("/post_processor", twice, "want the text (A) exactly once");
  check_refused("/post_processor", bos_template(), "id of a token before the text: got 261");
}

}  // namespace
}  // namespace baton
