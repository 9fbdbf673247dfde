#include "router/openai_response.h"

namespace baton {
namespace {

Json usage_json(const UsageCounts& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json workers_json(const ServedBy& workers) {
  return {{"prefill", workers.prefill}, {"decode", workers.decode}};
}

Json stop_reason_json(const StopReason& reason) {
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  if (const auto* id = std::get_if<TokenId>(&reason)) return *id;
  return nullptr;
}

Json finish_json(FinishReason finish) {
  return finish == FinishReason::kNone ? Json() : Json(finish_name(finish));
}

void append_finish(std::string& out, const ChoicePart& part) {
  out += ",\"finish_reason\":";
  if (part.finish == FinishReason::kNone) {
    out += "null";
    return;
  }
  append_json_string(out, finish_name(part.finish));
  out += ",\"stop_reason\":" + dump_json(stop_reason_json(part.stop_reason));
}

}  // namespace

const char* finish_name(FinishReason finish) {
  switch (finish) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

ResponseWriter::ResponseWriter(ApiKind kind, const std::string& id, int64_t created_s,
                               const std::string& model)
    : kind_(kind),
      id_((kind == ApiKind::kChat ? "chatcmpl-" : "cmpl-") + id),
      created_s_(created_s),
      model_(model) {
  chunk_head_ = "data: {\"id\":";
  append_json_string(chunk_head_, id_);
  chunk_head_ += kind == ApiKind::kChat ? ",\"object\":\"chat.completion.chunk\""
                                        : ",\"object\":\"text_completion\"";
  chunk_head_ += ",\"created\":" + std::to_string(created_s) + ",\"model\":";
  append_json_string(chunk_head_, model);
  chunk_head_ += ",\"choices\":[";
}

std::string ResponseWriter::body(const std::vector<ChoicePart>& choices, const UsageCounts& usage,
                                 const ServedBy* workers) const {
  const bool chat = kind_ == ApiKind::kChat;
  Json body{{"id", id_},
            {"object", chat ? "chat.completion" : "text_completion"},
            {"created", created_s_},
            {"model", model_},
            {"choices", Json::array()}};
  for (const ChoicePart& part : choices) {
    Json choice{{"index", part.index}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", part.text}, {"refusal", nullptr}};
    } else {
      choice["text"] = part.text;
    }
    choice["logprobs"] = part.logprobs;
    choice["finish_reason"] = finish_json(part.finish);
    choice["stop_reason"] = stop_reason_json(part.stop_reason);
    if (part.prompt_logprobs && !chat) choice["prompt_logprobs"] = *part.prompt_logprobs;
    if (part.token_ids) choice["token_ids"] = *part.token_ids;
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = usage_json(usage);
  // A chat has one prompt for all of its choices.
  if (chat && choices.front().prompt_logprobs) {
    body["prompt_logprobs"] = *choices.front().prompt_logprobs;
  }
  if (workers != nullptr) body["workers"] = workers_json(*workers);
  body["system_fingerprint"] = nullptr;
  return dump_json(body);
}

std::string ResponseWriter::finish_chunk(std::string choice, const UsageCounts* usage,
                                         const ServedBy* workers) const {
  std::string out = chunk_head_ + std::move(choice) + "]";
  if (usage != nullptr) out += ",\"usage\":" + dump_json(usage_json(*usage));
  if (workers != nullptr) out += ",\"workers\":" + dump_json(workers_json(*workers));
  out += "}\n\n";
  return out;
}

std::string ResponseWriter::role_chunk(int32_t index, const UsageCounts* usage) const {
  return finish_chunk("{\"index\":" + std::to_string(index) +
                          ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                          "\"finish_reason\":null}",
                      usage);
}

std::string ResponseWriter::chunk(const ChoicePart& part, const UsageCounts* usage) const {
  std::string out = "{\"index\":" + std::to_string(part.index);
  if (kind_ == ApiKind::kCompletion) {
    out += ",\"text\":";
    append_json_string(out, part.text);
  } else if (part.text.empty()) {
    out += ",\"delta\":{}";
  } else {
    out += ",\"delta\":{\"content\":";
    append_json_string(out, part.text);
    out += '}';
  }
  out += ",\"logprobs\":";
  out += part.logprobs.is_null() ? "null" : dump_json(part.logprobs);
  append_finish(out, part);
  if (part.token_ids) out += ",\"token_ids\":" + dump_json(*part.token_ids);
  out += '}';
  return finish_chunk(std::move(out), usage, part.workers);
}

std::string ResponseWriter::usage_chunk(const UsageCounts& usage) const {
  return finish_chunk("", &usage);
}

}  // namespace baton
