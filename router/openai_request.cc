#include "router/openai_request.h"

#include <algorithm>

#include "base/message_codec.h"
#include "router/json_fields.h"
#include "router/openai_messages.h"
#include "router/openai_sampling.h"

namespace baton {
namespace {

constexpr int32_t kTopLogprobsMax = 20;
// Of a request's lists, as every message of every prompt carries them.
constexpr size_t kSpecBytesMax = 8 << 20;
constexpr int64_t kPromptLogprobsMax = 1 << 20;  // entries in one answer

Status check_model(const ApiRequest& request, const ModelFacts& facts) {
  if (request.model.empty() || request.model == facts.name) return {};
  return Status(Code::kNotFound, "model: got \"" + request.model.substr(0, 100) + "\", want \"" +
                                     facts.name + "\", the one served here");
}

Status check_prompts(const ApiRequest& request, const ModelFacts& facts) {
  for (const std::vector<TokenId>& prompt : request.prompts) {
    if (prompt.empty()) return invalid_argument("prompt: got no tokens, want at least one");
    const auto tokens = static_cast<int64_t>(prompt.size());
    const int64_t output = request.max_tokens_set ? request.spec.max_tokens : 1;
    if (tokens + output <= facts.context_len) continue;
    return invalid_argument("This model's maximum context length is " +
                            std::to_string(facts.context_len) +
                            " tokens. However, the prompt has " + std::to_string(tokens) +
                            " tokens and " + std::to_string(output) +
                            " output tokens were requested. Shorten the prompt or max_tokens.");
  }
  return {};
}

void truncate(const ApiRequest& request, const ModelFacts& facts, std::vector<TokenId>& prompt) {
  if (request.truncate_tokens == 0) return;
  int64_t keep = request.truncate_tokens;
  if (keep < 0) {
    const int64_t output = request.max_tokens_set ? request.spec.max_tokens : 1;
    keep = std::max<int64_t>(1, facts.context_len - output);
  }
  const int64_t excess = std::ssize(prompt) - keep;
  if (excess <= 0) return;
  const auto first = request.truncate_end ? prompt.end() - excess : prompt.begin();
  prompt.erase(first, first + excess);
}

// What memory a request may take that is small on the wire.
Status check_size(const ApiRequest& request) {
  const size_t spec_bytes = encoded_bytes_max(request.spec) * request.prompts.size();
  if (spec_bytes > kSpecBytesMax) {
    return invalid_argument("prompt: got " + std::to_string(request.prompts.size()) +
                            " prompts whose token lists, biases and bad words take " +
                            std::to_string(spec_bytes) + " bytes in all, want at most " +
                            std::to_string(kSpecBytesMax));
  }
  if (request.spec.prompt_logprobs < 0) return {};
  int64_t entries = 0;
  for (const std::vector<TokenId>& prompt : request.prompts) {
    entries += std::ssize(prompt) * (request.spec.prompt_logprobs + 1);
  }
  if (entries <= kPromptLogprobsMax) return {};
  return invalid_argument(std::string(request.prompt_logprobs_asked ? "prompt_" : "") +
                          "logprobs: got " + std::to_string(entries) +
                          " entries for the tokens of all prompts, want at most " +
                          std::to_string(kPromptLogprobsMax));
}

Status check(const FieldReader& fields, const ApiRequest& request, const ModelFacts& facts) {
  Status status = fields.status();
  if (status.ok()) status = check_model(request, facts);
  if (status.ok()) status = check_prompts(request, facts);
  if (status.ok()) status = check_size(request);
  return status;
}

// prompt: "text", ["text", ...], [ids], [[ids], ...]
class PromptReader {
 public:
  PromptReader(FieldReader& fields, const TextModel& model, const ModelFacts& facts,
               ApiRequest& request)
      : fields_(fields), model_(model), facts_(facts), request_(request) {
    fields.boolean("add_special_tokens", options_.add_special_tokens);
  }

  void read(int32_t batch_max) {
    const Json* prompt = fields_.find("prompt");
    if (prompt == nullptr || prompt->empty() || *prompt == "") {
      return fields_.complain("prompt", prompt == nullptr ? "nothing" : shown(*prompt), kWant);
    }
    if (!prompt->is_array() || prompt->front().is_number()) return add(*prompt);
    if (prompt->size() > static_cast<size_t>(batch_max)) {
      return fields_.complain("prompt", shown(*prompt),
                              "at most " + std::to_string(batch_max) + " prompts (http.batch_max)");
    }
    for (const Json& one : *prompt) add(one);
  }

 private:
  static constexpr const char* kWant =
      "a string, a list of strings, a list of token ids, or a list of such lists, none empty";

  void add(const Json& prompt) {
    if (!fields_.status().ok()) return;
    std::vector<TokenId> ids;
    if (prompt.is_string()) {
      auto encoded = model_.tokenizer->encode(prompt.get_ref<const std::string&>(), options_);
      if (!encoded.ok()) {
        return fields_.refuse(invalid_argument("prompt: " + encoded.status().message()));
      }
      ids = std::move(*encoded);
    } else if (const auto packed = packed_ids(prompt)) {
      ids.assign(packed->begin(), packed->end());
      const auto wrong =
          std::find_if(ids.begin(), ids.end(), [&](TokenId id) { return id >= facts_.vocab_size; });
      if (wrong != ids.end()) read_token_id(*wrong, "prompt", facts_.vocab_size, fields_);
    } else if (prompt.is_array() && !prompt.empty()) {
      for (const Json& id : prompt) {
        ids.push_back(read_token_id(id, "prompt", facts_.vocab_size, fields_));
      }
    } else {
      return fields_.complain("prompt", shown(prompt), kWant);
    }
    const size_t whole = ids.size();
    truncate(request_, facts_, ids);
    if (request_.echo && fields_.status().ok()) {
      const bool as_sent = prompt.is_string() && ids.size() == whole;
      request_.echoed.push_back(as_sent ? prompt.get<std::string>()
                                        : decode(*model_.tokenizer, ids, false));
    }
    request_.prompts.push_back(std::move(ids));
  }

  FieldReader& fields_;
  const TextModel& model_;
  const ModelFacts& facts_;
  ApiRequest& request_;
  EncodeOptions options_;
};

}  // namespace

int32_t ApiRequest::max_tokens(size_t prompt_index, int32_t context_len) const {
  if (max_tokens_set) return spec.max_tokens;
  return context_len - static_cast<int32_t>(prompts[prompt_index].size());
}

Result<ApiRequest> read_chat_request(const Json& body, const TextModel& model,
                                     const ModelFacts& facts, const HttpConfig& limits) {
  ApiRequest request{.kind = ApiKind::kChat};
  FieldReader fields(body);
  read_shared_fields(fields, model, facts, limits, request);
  fields.boolean("logprobs", request.logprobs);
  int32_t top_logprobs = 0;
  fields.integer("top_logprobs", top_logprobs, 0, kTopLogprobsMax);
  if (top_logprobs > 0 && !request.logprobs) {
    fields.complain("top_logprobs", std::to_string(top_logprobs),
                    "none, or \"logprobs\": true with it");
  }
  fields.boolean("echo", request.echo);
  if (request.echo) fields.complain("echo", "true", "false: it is not supported yet for chats");
  if (request.logprobs) request.spec.logprobs = top_logprobs;
  if (!fields.status().ok()) return fields.status();
  auto prompt = encode_messages(body, model, limits);
  if (!prompt.ok()) return prompt.status();
  truncate(request, facts, *prompt);
  request.prompts.push_back(std::move(*prompt));
  const Status status = check(fields, request, facts);
  if (!status.ok()) return status;
  return request;
}

Result<ApiRequest> read_completion_request(const Json& body, const TextModel& model,
                                           const ModelFacts& facts, const HttpConfig& limits) {
  ApiRequest request{.kind = ApiKind::kCompletion};
  FieldReader fields(body);
  read_shared_fields(fields, model, facts, limits, request);
  fields.boolean("echo", request.echo);
  const Json* logprobs = fields.find("logprobs");
  if (logprobs != nullptr && *logprobs != false) {
    fields.integer("logprobs", request.spec.logprobs, 0, kTopLogprobsMax);
    request.logprobs = true;
    if (request.echo && request.spec.prompt_logprobs < 0)
      request.spec.prompt_logprobs = request.spec.logprobs;
  }
  if (request.no_output && !request.echo) {
    fields.complain("max_tokens", "0", "at least 1, or \"echo\": true with it");
  }
  if (fields.status().ok()) PromptReader(fields, model, facts, request).read(limits.batch_max);
  const Status status = check(fields, request, facts);
  if (!status.ok()) return status;
  return request;
}

}  // namespace baton
