#include "router/openai_sampling.h"

#include <charconv>

#include "router/http_rules.h"

namespace baton {
namespace {

constexpr int32_t kLogprobsMax = 20;
constexpr size_t kStopsMax = 64;
constexpr size_t kStopBytesMax = 1024;
constexpr size_t kBadWordsMax = 256;
constexpr size_t kBadWordBytesMax = 256;
constexpr size_t kStopIdsMax = 1024;
constexpr size_t kLogitBiasesMax = 1024;
constexpr size_t kCacheSaltBytesMax = 256;
// Beyond these a float logit may become infinite.
constexpr double kRepetitionPenaltyMin = 0.01, kRepetitionPenaltyMax = 100;
constexpr int64_t kPriorityMax = 1000;  // so that the lowest one, too, comes to its turn
constexpr int64_t kInt32Max = INT32_MAX;

// Fields with a meaning that a client relies on: taking them silently would give wrong answers.
constexpr const char* kNotSupportedYet[] = {
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "thinking_token_budget",
    "separate_reasoning",
    "prompt_embeds",
    "suffix",
    "audio",
    "web_search_options",
    "use_beam_search",
    "best_of",
    "lora_path",
    "custom_logit_processor",
    "session_params",
};

// The harmless spellings of those fields: what clients send when they want nothing of them.
bool asks_for_nothing(const std::string& name, const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_array() || value.is_object() || value.is_string()) {
    if (value.empty() || value == "") return true;
  }
  if (name == "response_format") return value.is_object() && value.value("type", Json()) == "text";
  if (name == "tool_choice" || name == "function_call") return value == "none" || value == "auto";
  return name == "best_of" && value == 1;
}

void refuse_unsupported(FieldReader& fields) {
  for (const char* name : kNotSupportedYet) {
    const Json* value = fields.find(name);
    if (value == nullptr || asks_for_nothing(name, *value)) continue;
    const bool is_format = name == std::string_view("response_format");
    fields.complain(name, shown(*value),
                    is_format ? R"({"type":"text"}: others are not supported yet)"
                              : "none: it is not supported yet");
  }
  bool with_reasoning = true;
  fields.boolean("include_reasoning", with_reasoning);
  if (!with_reasoning) {
    fields.complain("include_reasoning", "false", "true: false is not supported yet");
  }
}

bool is_text_of(const Json& value, size_t bytes_max) {
  if (!value.is_string()) return false;
  const size_t bytes = value.get_ref<const std::string&>().size();
  return bytes > 0 && bytes <= bytes_max;
}

void read_stops(FieldReader& fields, std::vector<std::string>& stops) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return;
  const std::string want = "a string or a list of at most " + std::to_string(kStopsMax) +
                           " strings, each of 1 to " + std::to_string(kStopBytesMax) + " bytes";
  const size_t count = value->is_array() ? value->size() : 1;
  if (count > kStopsMax) return fields.complain("stop", shown(*value), want);
  for (size_t i = 0; i < count; ++i) {
    const Json& stop = value->is_array() ? (*value)[i] : *value;
    if (!is_text_of(stop, kStopBytesMax)) return fields.complain("stop", shown(stop), want);
    stops.push_back(stop.get<std::string>());
  }
}

void read_logit_bias(FieldReader& fields, int32_t vocab_size, SamplingSpec& spec) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  const std::string want = "an object of at most " + std::to_string(kLogitBiasesMax) +
                           " token ids from 0 to " + std::to_string(vocab_size - 1) +
                           " with numbers from -100 to 100";
  if (!value->is_object() || value->size() > kLogitBiasesMax)
    return fields.complain("logit_bias", shown(*value), want);
  for (const auto& [key, bias] : value->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool valid_id =
        error == std::errc() && end == key.data() + key.size() && id >= 0 && id < vocab_size;
    const double number = bias.is_number() ? bias.get<double>() : 1000.0;
    if (!valid_id || number < -100 || number > 100) {
      return fields.complain("logit_bias", "\"" + key.substr(0, 20) + "\": " + shown(bias), want);
    }
    spec.logit_bias.emplace_back(id, static_cast<float>(number));
  }
}

void read_bad_words(FieldReader& fields, const Tokenizer& tokenizer, SamplingSpec& spec) {
  const Json* value = fields.find("bad_words");
  if (value == nullptr) return;
  const std::string want = "a list of at most " + std::to_string(kBadWordsMax) +
                           " strings, each of 1 to " + std::to_string(kBadWordBytesMax) + " bytes";
  if (!value->is_array() || value->size() > kBadWordsMax) {
    return fields.complain("bad_words", shown(*value), want);
  }
  for (const Json& word : *value) {
    if (!is_text_of(word, kBadWordBytesMax)) return fields.complain("bad_words", shown(word), want);
    // A word may stand at the start of a text and, as other tokens, after a blank.
    for (const char* before : {"", " "}) {
      auto ids = tokenizer.encode(before + word.get<std::string>(), {.add_special_tokens = false});
      if (!ids.ok()) return fields.refuse(ids.status());
      if (!ids->empty()) spec.bad_words.push_back(std::move(*ids));
    }
  }
}

void read_max_tokens(FieldReader& fields, ApiRequest& request) {
  // The newer name wins. Completions may ask for 0, to have the prompt scored.
  const int64_t min = request.kind == ApiKind::kCompletion ? 0 : 1;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (fields.find(name) == nullptr) continue;
    fields.integer(name, request.spec.max_tokens, min, kInt32Max);
    request.max_tokens_set = true;
  }
  if (!request.max_tokens_set && request.kind == ApiKind::kCompletion) {
    request.spec.max_tokens = 16;
    request.max_tokens_set = true;
  }
  if (request.max_tokens_set && request.spec.max_tokens == 0) {
    request.no_output = true;
    request.spec.max_tokens = 1;
  }
  fields.integer("min_tokens", request.spec.min_tokens, 0, kInt32Max);
  if (request.max_tokens_set && request.spec.min_tokens > request.spec.max_tokens) {
    fields.complain("min_tokens", std::to_string(request.spec.min_tokens),
                    "at most max_tokens, which is " + std::to_string(request.spec.max_tokens));
  }
}

void read_seed(FieldReader& fields, ApiRequest& request) {
  if (fields.find("seed") == nullptr) return;
  int64_t seed = 0;
  fields.integer64("seed", seed, INT64_MIN, INT64_MAX);
  request.spec.seed = static_cast<uint64_t>(seed);
  request.seed_set = seed != -1;  // -1 is other servers' word for "any"
}

void read_request_id(FieldReader& fields, ApiRequest& request) {
  for (const char* name : {"rid", "request_id"}) {
    fields.text(name, request.request_id);
    if (request.request_id != safe_request_id(request.request_id)) {
      return fields.complain(name, shown(Json(request.request_id)),
                             "at most 128 letters, digits and -_.:");
    }
  }
}

void read_truncation(FieldReader& fields, ApiRequest& request) {
  fields.integer("truncate_prompt_tokens", request.truncate_tokens, -1, kInt32Max);
  if (fields.find("truncate_prompt_tokens") != nullptr && request.truncate_tokens == 0) {
    fields.complain("truncate_prompt_tokens", "0", "-1 or at least 1");
  }
  std::string side = "left";
  fields.text("truncation_side", side);
  if (side != "left" && side != "right") {
    fields.complain("truncation_side", shown(Json(side)), "\"left\" or \"right\"");
  }
  request.truncate_end = side == "right";
}

// Lists and texts that mean nothing when they are empty, so that an empty one is a mistake.
void refuse_empty(FieldReader& fields) {
  for (const char* name : {"allowed_token_ids", "cache_salt"}) {
    const Json* value = fields.find(name);
    if (value != nullptr && (value->empty() || *value == "")) {
      fields.complain(name, shown(*value), "one that is not empty, or none");
    }
  }
}

void read_stream_options(FieldReader& fields, ApiRequest& request) {
  fields.boolean("stream", request.stream);
  const Json* value = fields.find("stream_options");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.complain("stream_options", shown(*value), "an object");
  if (!request.stream) {
    return fields.complain("stream_options", shown(*value), "none, or \"stream\": true with it");
  }
  FieldReader options(*value);
  options.boolean("include_usage", request.include_usage);
  options.boolean("continuous_usage_stats", request.usage_in_every_chunk);
  request.usage_in_every_chunk = request.usage_in_every_chunk && request.include_usage;
  if (!options.status().ok()) {
    fields.refuse(invalid_argument("stream_options." + options.status().message()));
  }
}

}  // namespace

void read_shared_fields(FieldReader& fields, const TextModel& model, const ModelFacts& facts,
                        const HttpConfig& limits, ApiRequest& request) {
  SamplingSpec& spec = request.spec;
  spec = model.defaults;
  spec.eos_ids = model.eos_ids;
  refuse_unsupported(fields);
  refuse_empty(fields);
  fields.text("model", request.model);
  read_request_id(fields, request);
  read_truncation(fields, request);
  fields.integer("n", spec.n, 1, limits.n_max, "http.n_max");
  fields.number("temperature", spec.temperature, 0, 100);
  fields.number("top_p", spec.top_p, 0, 1, true);
  fields.integer("top_k", spec.top_k, -1, kInt32Max);
  if (spec.top_k < 0) spec.top_k = 0;
  fields.number("min_p", spec.min_p, 0, 1);
  fields.number("presence_penalty", spec.presence_penalty, -2, 2);
  fields.number("frequency_penalty", spec.frequency_penalty, -2, 2);
  fields.number("repetition_penalty", spec.repetition_penalty, kRepetitionPenaltyMin,
                kRepetitionPenaltyMax);
  fields.boolean("ignore_eos", spec.ignore_eos);
  fields.token_ids("stop_token_ids", spec.stop_ids, facts.vocab_size, kStopIdsMax);
  fields.token_ids("allowed_token_ids", spec.allowed_token_ids, facts.vocab_size,
                   static_cast<size_t>(facts.vocab_size));
  fields.integer("priority", spec.priority, -kPriorityMax, kPriorityMax);
  fields.text("cache_salt", spec.cache_salt, kCacheSaltBytesMax);
  fields.integer("prompt_logprobs", spec.prompt_logprobs, 0, kLogprobsMax);
  request.prompt_logprobs_asked = spec.prompt_logprobs >= 0;
  read_max_tokens(fields, request);
  read_seed(fields, request);
  read_stops(fields, request.stop);
  read_logit_bias(fields, facts.vocab_size, spec);
  read_bad_words(fields, *model.tokenizer, spec);
  read_stream_options(fields, request);
  fields.boolean("include_stop_str_in_output", request.include_stop);
  fields.boolean("skip_special_tokens", request.skip_special_tokens);
  fields.boolean("return_token_ids", request.return_token_ids);
  fields.boolean("return_workers", request.return_workers);
  fields.boolean("return_tokens_as_token_ids", request.tokens_as_ids);
  if (request.stream && spec.prompt_logprobs >= 0) {
    fields.complain("prompt_logprobs", std::to_string(spec.prompt_logprobs),
                    "none together with \"stream\": true");
  }
}

}  // namespace baton
