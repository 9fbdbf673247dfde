#include "router/text_api.h"

#include <limits>

#include "router/json_fields.h"
#include "router/openai_error.h"
#include "router/openai_messages.h"

namespace baton {
namespace {

Result<std::vector<TokenId>> tokens_of(const Json& body, const TextModel& model,
                                       const HttpConfig& limits) {
  FieldReader fields(body);
  std::string text;
  EncodeOptions options;
  fields.text("content", text);  // other servers' name of it
  fields.text("prompt", text);
  fields.boolean("add_special_tokens", options.add_special_tokens);
  const bool chat = fields.find("messages") != nullptr;
  if (!chat && fields.find("prompt") == nullptr && fields.find("content") == nullptr) {
    fields.complain("prompt", "nothing", "a string, or \"messages\"");
  }
  if (!fields.status().ok()) return fields.status();
  if (chat) return encode_messages(body, model, limits);
  return model.tokenizer->encode(text, options);
}

Json rendered(const std::vector<TokenId>& ids, const TextModel& model, const ModelFacts& facts) {
  return {{"model", facts.name},
          {"prompt", decode(*model.tokenizer, ids, false)},
          {"token_ids", ids},
          {"count", ids.size()},
          {"max_model_len", facts.context_len}};
}

}  // namespace

HttpResponse tokenize(const Json& body, const TextModel& model, const ModelFacts& facts,
                      const HttpConfig& limits) {
  FieldReader fields(body);
  bool with_names = false;
  fields.boolean("return_token_strs", with_names);
  if (!fields.status().ok()) return error_response(fields.status());
  const auto ids = tokens_of(body, model, limits);
  if (!ids.ok()) return error_response(ids.status());
  Json names;
  if (with_names) {
    names = Json::array();
    for (const TokenId id : *ids) names.push_back(model.tokenizer->token_name(id));
  }
  return {.body = dump_json({{"count", ids->size()},
                             {"max_model_len", facts.context_len},
                             {"tokens", *ids},
                             {"token_strs", names}})};
}

HttpResponse detokenize(const Json& body, const TextModel& model) {
  FieldReader fields(body);
  std::vector<TokenId> ids;
  fields.token_ids("tokens", ids, model.tokenizer->vocab_size());
  if (fields.find("tokens") == nullptr) fields.complain("tokens", "nothing", "a list of token ids");
  if (!fields.status().ok()) return error_response(fields.status());
  const std::string text = decode(*model.tokenizer, ids, false);
  return {.body = dump_json({{"prompt", text}, {"content", text}})};
}

HttpResponse tokenizer_info(const TextModel& model, const ModelFacts& facts) {
  Json info = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", facts.context_len},
               {"vocab_size", model.tokenizer->vocab_size()}};
  for (const auto& [name, token] : model.special_tokens) info[name] = token;
  // Clients read these three whether or not the model has them.
  for (const char* name : {"bos_token", "eos_token", "pad_token"}) {
    if (!info.contains(name)) info[name] = nullptr;
  }
  const int32_t bos_id = model.tokenizer->bos_id();
  info["bos_token_id"] = bos_id < 0 ? Json() : Json(bos_id);
  info["eos_token_ids"] = model.eos_ids;
  info["chat_template"] =
      model.chat_template_source.empty() ? Json() : Json(model.chat_template_source);
  return {.body = dump_json(info)};
}

HttpResponse render(ApiKind kind, const Json& body, const TextModel& model, const ModelFacts& facts,
                    const HttpConfig& limits) {
  ModelFacts known = facts;
  // Before a worker has come there is no limit to hold a prompt against.
  if (known.context_len == 0) known.context_len = std::numeric_limits<int32_t>::max();
  const bool chat = kind == ApiKind::kChat;
  const auto request = chat ? read_chat_request(body, model, known, limits)
                            : read_completion_request(body, model, known, limits);
  if (!request.ok()) return error_response(request.status());
  if (chat) return {.body = dump_json(rendered(request->prompts.front(), model, facts))};
  Json list = Json::array();
  for (const auto& prompt : request->prompts) list.push_back(rendered(prompt, model, facts));
  return {.body = dump_json(list)};
}

}  // namespace baton
