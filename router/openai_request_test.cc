#include "router/openai_request.h"

#include <nlohmann/json.hpp>

#include "router/byte_tokenizer.h"
#include "router/openai_error.h"

#include "tests/doctest.h"

namespace baton {
namespace {

struct Reader {
  Reader() {
    model.tokenizer = std::make_unique<ByteTokenizer>();
    model.chat_template = std::make_unique<ChatTemplate>(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}");
    model.eos_ids = {ByteTokenizer::kEos};
    model.defaults.temperature = 0.5F;
  }
  Result<ApiRequest> completion(const std::string& body) {
    const auto json = parse_json_object(body, limits.json_depth_max);
    if (!json.ok()) return json.status();
    return read_completion_request(*json, model, facts, limits);
  }
  Result<ApiRequest> chat(const std::string& body) {
    const auto json = parse_json_object(body, limits.json_depth_max);
    if (!json.ok()) return json.status();
    return read_chat_request(*json, model, facts, limits);
  }
  std::string chat_prompt(const std::string& body) {
    auto request = chat(body);
    REQUIRE_MESSAGE(request.ok(), request.status().message());
    return decode(*model.tokenizer, request->prompts.at(0), false);
  }

  TextModel model;
  ModelFacts facts{.name = "m", .context_len = 200, .vocab_size = 258};
  HttpConfig limits;
};

TEST_CASE("the four shapes of a prompt") {
  Reader reader;
  CHECK(reader.completion(R"({"prompt":"ab"})")->prompts ==
        std::vector<std::vector<TokenId>>{{256, 97, 98}});
  CHECK(reader.completion(R"({"prompt":["a","b"]})")->prompts.size() == 2);
  CHECK(reader.completion(R"({"prompt":[5,6,7]})")->prompts ==
        std::vector<std::vector<TokenId>>{{5, 6, 7}});
  CHECK(reader.completion(R"({"prompt":[[5],[6.0,7]]})")->prompts ==
        std::vector<std::vector<TokenId>>{{5}, {6, 7}});
}

TEST_CASE("defaults: completions 16 tokens, chats up to the context's end, the model's sampling") {
  Reader reader;
  const auto completion = reader.completion(R"({"prompt":[5],"max_tokens":null,"seed":null})");
  CHECK(completion->max_tokens(0, 200) == 16);
  CHECK(completion->spec.temperature == 0.5F);
  CHECK_FALSE(completion->seed_set);
  const auto chat = reader.chat(R"({"messages":[{"role":"user","content":"x"}]})");
  CHECK(chat->max_tokens(0, 200) == 200 - std::ssize(chat->prompts[0]));
  CHECK(reader
            .chat(R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3,
                        "max_completion_tokens":4})")
            ->spec.max_tokens == 4);
}

TEST_CASE("messages go through the template; parts are joined; the last one may be continued") {
  Reader reader;
  CHECK(reader.chat_prompt(R"({"messages":[{"role":"developer","content":"s"},
        {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})") ==
        "[system]s\n[user]a\nb\n[assistant]");
  CHECK(reader.chat_prompt(R"({"messages":[{"role":"user","content":"q"},
        {"role":"assistant","content":"so far"}],"continue_final_message":true})") ==
        "[user]q\n[assistant]so far");
}

TEST_CASE("bad fields are named, with what was got and what is wanted") {
  Reader reader;
  const struct {
    const char* body;
    const char* param;
  } cases[] = {
      {R"({"prompt":""})", "prompt"},
      {R"({})", "prompt"},
      {R"({"prompt":[999]})", "prompt"},
      {R"({"prompt":[-1]})", "prompt"},
      {R"({"prompt":[[]]})", "prompt"},
      {R"({"prompt":{"a":1}})", "prompt"},
      {R"({"prompt":"a","max_tokens":-3})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":"5"})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens"},
      {R"({"prompt":"a","n":1000000000})", "n"},
      {R"({"prompt":"a","temperature":-1})", "temperature"},
      {R"({"prompt":"a","top_p":0})", "top_p"},
      {R"({"prompt":"a","top_k":-2})", "top_k"},
      {R"({"prompt":"a","stop":""})", "stop"},
      {R"({"prompt":"a","stop":["a",5]})", "stop"},
      {R"({"prompt":"a","logprobs":21})", "logprobs"},
      {R"({"prompt":"a","logit_bias":{"x":1}})", "logit_bias"},
      {R"({"prompt":"a","logit_bias":{"300":1}})", "logit_bias"},
      {R"({"prompt":"a","min_tokens":20})", "min_tokens"},
      {R"({"prompt":"a","stream_options":{}})", "stream_options"},
      {R"({"prompt":"a","stream":true,"prompt_logprobs":1})", "prompt_logprobs"},
      {R"({"prompt":"a","response_format":{"type":"json_object"}})", "response_format"},
      {R"({"prompt":"a","suffix":"b"})", "suffix"},
      {R"({"prompt":"a","stream":1})", "stream"},
      {R"({"prompt":"a","repetition_penalty":1e-300})", "repetition_penalty"},
      {R"({"prompt":"a","repetition_penalty":0})", "repetition_penalty"},
  };
  for (const auto& one : cases) {
    const auto request = reader.completion(one.body);
    INFO(one.body);
    REQUIRE_FALSE(request.ok());
    CHECK(request.status().code() == Code::kInvalidArgument);
    const Json error = Json::parse(error_json(request.status()))["error"];
    CHECK(error["param"] == one.param);
    CHECK(error["message"].get<std::string>().find("got ") != std::string::npos);
    CHECK(error["message"].get<std::string>().find("want ") != std::string::npos);
  }
}

TEST_CASE("bad chats") {
  Reader reader;
  CHECK_FALSE(reader.chat(R"({})").ok());
  CHECK_FALSE(reader.chat(R"({"messages":[]})").ok());
  CHECK_FALSE(reader.chat(R"({"messages":[{"role":"x","content":"a"}]})").ok());
  CHECK_FALSE(reader.chat(R"({"messages":[{"role":"user"}]})").ok());
  CHECK_FALSE(
      reader.chat(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})").ok());
  CHECK_FALSE(reader.chat(R"({"messages":[{"role":"user","content":"a","tool_calls":{}}]})").ok());
  CHECK(reader.chat(R"({"messages":[{"role":"user","content":"a","tool_calls":[]}]})").ok());
  const std::string user = R"({"messages":[{"role":"user","content":"a"}],)";
  CHECK_FALSE(reader.chat(user + R"("tools":[{"type":"function"}]})").ok());
  CHECK(reader.chat(user + R"("tools":[],"response_format":{"type":"text"},"unknown":{}})").ok());
  CHECK_FALSE(reader.chat(user + R"("top_logprobs":2})").ok());
  CHECK(reader.chat(user + R"("top_logprobs":2,"logprobs":true})")->spec.logprobs == 2);
  CHECK_FALSE(reader.chat(user + R"("chat_template_kwargs":{"messages":[]}})").ok());
  const auto missing = reader.chat(user + R"("model":"other"})");
  CHECK(missing.status().code() == Code::kNotFound);
}

TEST_CASE("fields of features to come are refused by name, their harmless values are not") {
  Reader reader;
  const auto complaint = [&](const std::string& field) {
    const auto request = reader.completion(R"({"prompt":"a",)" + field + "}");
    if (request.ok()) return std::string();
    const Json error = Json::parse(error_json(request.status()))["error"];
    CHECK(error["message"].get<std::string>().find("not supported yet") != std::string::npos);
    return error["param"].get<std::string>();
  };
  for (const char* field :
       {R"("tools":[{}])", R"("tool_choice":"required")", R"("tool_choice":{"type":"function"})",
        R"("functions":[{}])", R"("function_call":{"name":"f"})", R"("guided_regex":"a+")",
        R"("structured_outputs":{"json":{}})", R"("response_format":{"type":"json_schema"})",
        R"("thinking_token_budget":5)", R"("separate_reasoning":true)",
        R"("include_reasoning":false)", R"("suffix":"x")", R"("best_of":2)",
        R"("use_beam_search":true)", R"("lora_path":"x")", R"("web_search_options":{"a":1})"}) {
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    CHECK(complaint(field) == name);
  }
  for (const char* field :
       {R"("tools":[])", R"("tool_choice":"none")", R"("tool_choice":"auto")", R"("best_of":1)",
        R"("response_format":{"type":"text"})", R"("include_reasoning":true)", R"("suffix":"")",
        R"("use_beam_search":false)", R"("structured_outputs":null)"}) {
    INFO(field);
    CHECK(complaint(field).empty());
  }
}

TEST_CASE("lists and texts that mean nothing when empty are refused") {
  Reader reader;
  for (const char* field : {"\"allowed_token_ids\":[]", "\"cache_salt\":\"\""}) {
    CHECK_FALSE(reader.completion(std::string(R"({"prompt":"a",)") + field + "}").ok());
  }
}

TEST_CASE("truncate_prompt_tokens keeps the last tokens, the first, or what the context holds") {
  Reader reader;
  const auto prompt = [&](const std::string& fields) {
    const auto request = reader.completion(R"({"prompt":[1,2,3,4,5],)" + fields + "}");
    REQUIRE_MESSAGE(request.ok(), request.status().message());
    return request->prompts[0];
  };
  CHECK(prompt(R"("truncate_prompt_tokens":2)") == std::vector<TokenId>{4, 5});
  CHECK(prompt(R"("truncate_prompt_tokens":2,"truncation_side":"right")") ==
        std::vector<TokenId>{1, 2});
  CHECK(prompt(R"("truncate_prompt_tokens":9)").size() == 5);
  CHECK(prompt(R"("truncate_prompt_tokens":-1,"max_tokens":197)") == std::vector<TokenId>{3, 4, 5});
  const auto echoed = reader.completion(
      R"({"prompt":"abcd","truncate_prompt_tokens":2,"echo":true,"max_tokens":0})");
  CHECK(echoed->echoed == std::vector<std::string>{"cd"});
  CHECK_FALSE(reader.completion(R"({"prompt":"a","truncate_prompt_tokens":0})").ok());
  CHECK_FALSE(reader.completion(R"({"prompt":"a","truncation_side":"middle"})").ok());
}

TEST_CASE("a request's own chat template, where it is allowed, within limits") {
  Reader reader;
  const std::string user = R"({"messages":[{"role":"user","content":"a"}],)";
  const std::string own = user + R"("chat_template":"<{{ messages[0].content }}>"})";
  CHECK_FALSE(reader.chat(own).ok());
  reader.limits.trust_request_chat_template = true;
  CHECK(reader.chat_prompt(own) == "<a>");
  CHECK_FALSE(reader.chat(user + R"("chat_template":"{% for %}"})").ok());
  CHECK_FALSE(reader
                  .chat(user + R"("chat_template":"{% for a in range(999999) %}{% for b in )" +
                        R"(range(999999) %}{% endfor %}{% endfor %}"})")
                  .ok());
  CHECK_FALSE(reader.chat(user + "\"chat_template\":\"" + std::string(70'000, 'x') + "\"}").ok());
}

TEST_CASE("documents and reasoning_effort reach the template") {
  Reader reader;
  reader.model.chat_template = std::make_unique<ChatTemplate>(
      "{% for d in documents %}{{ d.text }};{% endfor %}{{ reasoning_effort }} {{ enable_thinking "
      "}}");
  const std::string user = R"({"messages":[{"role":"user","content":"a"}],)";
  CHECK(reader.chat_prompt(user + R"("documents":[{"text":"x"}],"reasoning_effort":"none"})") ==
        "x;none False");
  CHECK_FALSE(reader.chat(user + R"("documents":["x"]})").ok());
  CHECK_FALSE(reader.chat(user + R"("reasoning_effort":3})").ok());
}

TEST_CASE("the context's length is a limit, told as clients expect it") {
  Reader reader;
  const std::string prompt(150, 'a');
  CHECK(reader.completion(R"({"prompt":")" + prompt + R"(","max_tokens":49})").ok());
  const auto request = reader.completion(R"({"prompt":")" + prompt + R"(","max_tokens":50})");
  REQUIRE_FALSE(request.ok());
  CHECK(request.status().message().find("maximum context length is 200") != std::string::npos);
  CHECK(Json::parse(error_json(request.status()))["error"]["code"] == "context_length_exceeded");
}

TEST_CASE("nothing that a message or a choice copies is without a bound") {
  Reader reader;
  const auto list = [](const std::string& name, const std::string& element, size_t count) {
    std::string body = R"({"prompt":"a",")" + name + "\":[" + element;
    for (size_t i = 1; i < count; ++i) body += "," + element;
    return body + "]}";
  };
  const auto text = [](const std::string& name, size_t bytes) {
    return R"({"prompt":"a",")" + name + "\":\"" + std::string(bytes, 'x') + "\"}";
  };
  CHECK(reader.completion(list("stop_token_ids", "5", 1024)).ok());
  CHECK_FALSE(reader.completion(list("stop_token_ids", "5", 1025)).ok());
  CHECK(reader.completion(list("allowed_token_ids", "5", 258)).ok());
  CHECK_FALSE(reader.completion(list("allowed_token_ids", "5", 259)).ok());
  CHECK(reader.completion(text("cache_salt", 256)).ok());
  CHECK_FALSE(reader.completion(text("cache_salt", 257)).ok());
  CHECK(reader.completion(text("stop", 1024)).ok());
  CHECK_FALSE(reader.completion(text("stop", 1025)).ok());
  const auto word = [](size_t bytes) { return '"' + std::string(bytes, 'x') + '"'; };
  CHECK(reader.completion(list("bad_words", word(256), 1)).ok());
  CHECK_FALSE(reader.completion(list("bad_words", word(257), 1)).ok());
  // Each list is within its bound, but every prompt's messages carry them all.
  std::string prompts = "[5]";
  for (int i = 0; i < 49; ++i) prompts += ",[5]";
  const std::string words = list("bad_words", word(256), 256);
  const auto many = reader.completion("{\"prompt\":[" + prompts + "]," + words.substr(14));
  REQUIRE_FALSE(many.ok());
  CHECK(many.status().message().find("want at most 8388608") != std::string::npos);
}

TEST_CASE("objects of many members are refused before their keys are compared") {
  Reader reader;
  const auto members = [](int count) {
    std::string body = "{\"prompt\":\"a\"";
    for (int i = 1; i < count; ++i) body += ",\"k" + std::to_string(i) + "\":[1]";
    return body + "}";
  };
  CHECK(reader.completion(members(1024)).ok());
  const auto many = reader.completion(members(1025));
  REQUIRE_FALSE(many.ok());
  CHECK(many.status().message().find("1024 members") != std::string::npos);
  CHECK_FALSE(reader.completion(std::string(1000, ']') + "{}").ok());
}

TEST_CASE("max_tokens 0 with a prompt as long as the context is too long") {
  Reader reader;
  const auto scored = [&](int tokens) {
    std::string ids = "5";
    for (int i = 1; i < tokens; ++i) ids += ",5";
    return reader.completion("{\"prompt\":[" + ids +
                             R"(],"max_tokens":0,"echo":true,"logprobs":1})");
  };
  CHECK(scored(199).ok());
  const auto full = scored(200);
  REQUIRE_FALSE(full.ok());
  CHECK(Json::parse(error_json(full.status()))["error"]["code"] == "context_length_exceeded");
}

TEST_CASE("prompt logprobs are bounded over all prompts") {
  Reader reader;
  reader.facts.context_len = 60'000;
  std::string ids = "5";
  for (int i = 1; i < 50'000; ++i) ids += ",5";
  CHECK(reader.completion("{\"prompt\":[" + ids + R"(],"prompt_logprobs":19})").ok());
  const auto many = reader.completion("{\"prompt\":[" + ids + R"(],"prompt_logprobs":20})");
  REQUIRE_FALSE(many.ok());
  CHECK(Json::parse(error_json(many.status()))["error"]["param"] == "prompt_logprobs");
}

TEST_CASE("scoring: echo with logprobs and max_tokens 0") {
  Reader reader;
  const auto request =
      reader.completion(R"({"prompt":[[97,98]],"max_tokens":0,"echo":true,"logprobs":1})");
  REQUIRE(request.ok());
  CHECK(request->no_output);
  CHECK(request->spec.max_tokens == 1);
  CHECK(request->spec.prompt_logprobs == 1);
  CHECK_FALSE(request->prompt_logprobs_asked);
  CHECK(request->echoed == std::vector<std::string>{"ab"});
}

TEST_CASE("JSON that is broken, deep, or not an object") {
  Reader reader;
  CHECK_FALSE(reader.completion("{\"prompt\": ").ok());
  CHECK_FALSE(reader.completion("[1]").ok());
  CHECK_FALSE(reader.completion("{\"prompt\": \"\xff\"}").ok());
  CHECK_FALSE(reader.completion("{\"prompt\": NaN}").ok());
  CHECK_FALSE(reader.completion("{\"x\":" + std::string(100000, '[')).ok());
  CHECK(reader.completion(R"({"prompt":"[[[[\"[[[["})").ok());
}

TEST_CASE("strings are escaped so that any parser reads them back") {
  std::string text;
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  text += "é漢🙂";
  std::string out;
  append_json_string(out, text);
  CHECK(Json::parse(out) == text);
  CHECK(out.find('\n') == std::string::npos);
}

TEST_CASE("an error said \"an object\" where it could have shown what was sent") {
  Reader reader;
  const auto message = [&](const std::string& field) {
    return reader.completion(R"({"prompt":"a",)" + field + "}").status().message();
  };
  CHECK(message(R"("response_format":{"type":"json_object"})") ==
        R"(response_format: got {"type":"json_object"}, want {"type":"text"}: others are not )"
        "supported yet");
  CHECK(message(R"("stop":[[]])").starts_with("stop: got [], want a string or a list"));
  CHECK(message(R"("top_k":{"a":{}})").starts_with("top_k: got an object, want"));
  CHECK(message(R"("top_k":[1,2,3,4,5])").starts_with("top_k: got a list of 5, want"));
  CHECK(message(R"("top_k":[")" + std::string(50, 'x') + "\"]")
            .starts_with("top_k: got a list of 1"));
  CHECK(reader.completion("").status().message().starts_with("body: got nothing, want one JSON"));
  CHECK(message(R"("n":99)") == "n: got 99, want an integer from 1 to 16 (http.n_max)");
}

}  // namespace
}  // namespace baton
