#include "router/openai_messages.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"

namespace baton {
namespace {

constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
// What the template is given by us; a request's chat_template_kwargs must not replace it.
constexpr const char* kReserved[] = {
    "messages", "tools", "documents", "add_generation_prompt", "chat_template", "tokenize"};
constexpr size_t kTemplateBytesMax = 64 << 10;
constexpr size_t kEffortBytesMax = 32;

// Content is a string, or a list of text parts, which are joined by line ends.
Result<std::string> plain_content(const Json& content, const std::string& subject) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return invalid_argument(subject + ": got " + shown(content) +
                            ", want a string or a list of text parts");
  }
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      const Json type = part.is_object() ? part.value("type", Json()) : part;
      return invalid_argument(subject + ": got a part of type " + shown(type) +
                              ", want parts {\"type\": \"text\", \"text\": ...} only: others "
                              "are not supported yet");
    }
    if (&part != &content.front()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

Result<Json> plain_message(const Json& message, const std::string& subject) {
  if (!message.is_object()) {
    return invalid_argument(subject + ": got " + shown(message) + ", want an object");
  }
  const Json role = message.value("role", Json());
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    return invalid_argument(subject + ".role: got " + shown(role) +
                            ", want system, developer, user, assistant, tool or function");
  }
  const Json calls = message.value("tool_calls", Json());
  if (!calls.is_null() && calls != Json::array()) {
    return invalid_argument(subject + ".tool_calls: got " + shown(calls) +
                            ", want none: it is not supported yet");
  }
  auto content = plain_content(message.value("content", Json()), subject + ".content");
  if (!content.ok()) return content.status();
  Json plain = message;
  plain.erase("tool_calls");
  if (role == "developer") plain["role"] = "system";  // templates know the older name
  plain["content"] = std::move(*content);
  return plain;
}

Result<Json> plain_messages(FieldReader& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return invalid_argument(std::string("messages: got ") +
                            (messages == nullptr ? "nothing" : shown(*messages)) +
                            ", want a list of at least one message");
  }
  Json plain = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    auto message = plain_message((*messages)[i], "messages[" + std::to_string(i) + "]");
    if (!message.ok()) return message.status();
    plain.push_back(std::move(*message));
  }
  return plain;
}

void add_kwargs(FieldReader& fields, Json& context) {
  const Json* kwargs = fields.find("chat_template_kwargs");
  if (kwargs == nullptr) return;
  if (!kwargs->is_object()) {
    return fields.complain("chat_template_kwargs", shown(*kwargs), "an object");
  }
  for (const auto& [key, value] : kwargs->items()) {
    if (std::find(std::begin(kReserved), std::end(kReserved), key) != std::end(kReserved)) {
      return fields.complain("chat_template_kwargs", "the key \"" + key + "\"", "other keys only");
    }
    context[key] = value;
  }
}

// Cuts the rendered text right after the last message's content, so that the model goes on with it.
Status cut_after(const std::string& content, std::vector<TextSpan>& spans) {
  const size_t begin = content.find_first_not_of(" \t\r\n");
  const size_t end = content.find_last_not_of(" \t\r\n");
  const std::string core = begin == std::string::npos ? "" : content.substr(begin, end - begin + 1);
  const size_t at = concatenate(spans).rfind(core);
  if (core.empty() || at == std::string::npos) {
    return invalid_argument(
        "continue_final_message: got a last message whose content the template does not show "
        "as it is, want one that it does");
  }
  size_t left = at + core.size();
  for (TextSpan& span : spans) {
    span.text.resize(std::min(span.text.size(), left));
    left -= span.text.size();
  }
  std::erase_if(spans, [](const TextSpan& span) { return span.text.empty(); });
  return {};
}

void add_reasoning_effort(FieldReader& fields, Json& context) {
  std::string effort;
  fields.text("reasoning_effort", effort, kEffortBytesMax);
  if (effort.empty()) return;
  context["reasoning_effort"] = effort;
  // The one effort that templates know by another name.
  if (effort == "none" && !context.contains("enable_thinking")) context["enable_thinking"] = false;
}

void add_documents(FieldReader& fields, Json& context) {
  const Json* documents = fields.find("documents");
  if (documents == nullptr) return;
  const bool objects =
      documents->is_array() && std::all_of(documents->begin(), documents->end(),
                                           [](const Json& one) { return one.is_object(); });
  if (!objects) return fields.complain("documents", shown(*documents), "a list of objects");
  context["documents"] = *documents;
}

// The request's own template, where that is allowed; null: the model's.
std::unique_ptr<ChatTemplate> template_of(FieldReader& fields, const HttpConfig& limits) {
  std::string source;
  fields.text("chat_template", source, kTemplateBytesMax);
  if (source.empty() || !fields.status().ok()) return nullptr;
  if (!limits.trust_request_chat_template) {
    fields.complain("chat_template", "a template of " + std::to_string(source.size()) + " bytes",
                    "none: this server uses its own (http.trust_request_chat_template)");
    return nullptr;
  }
  try {
    return std::make_unique<ChatTemplate>(source);
  } catch (const ConfigError& error) {
    fields.refuse(invalid_argument(std::string("chat_template: got ") + error.what() +
                                   ", want a template that can be read"));
    return nullptr;
  }
}

Json template_context(FieldReader& fields, const TextModel& model, Json messages,
                      bool generation_prompt) {
  Json context;
  for (const auto& [name, token] : model.special_tokens) context[name] = token;
  add_kwargs(fields, context);
  add_reasoning_effort(fields, context);
  add_documents(fields, context);
  context["messages"] = std::move(messages);
  context["add_generation_prompt"] = generation_prompt;
  return context;
}

}  // namespace

Result<std::vector<TokenId>> encode_messages(const Json& body, const TextModel& model,
                                             const HttpConfig& limits) {
  FieldReader fields(body);
  auto messages = plain_messages(fields);
  if (!messages.ok()) return messages.status();
  bool continue_final = false;
  fields.boolean("continue_final_message", continue_final);
  bool generation_prompt = !continue_final;
  fields.boolean("add_generation_prompt", generation_prompt);
  bool add_special_tokens = false;  // the template writes BOS itself
  fields.boolean("add_special_tokens", add_special_tokens);
  if (continue_final && generation_prompt) {
    fields.complain("continue_final_message", "true", "false when add_generation_prompt is true");
  }
  const std::unique_ptr<ChatTemplate> own = template_of(fields, limits);
  const ChatTemplate* const chat_template = own ? own.get() : model.chat_template.get();
  if (chat_template == nullptr) {
    fields.complain("messages", "some",
                    "a prompt for /v1/completions: this model has no chat template");
  }
  const std::string last = messages->back()["content"].get<std::string>();
  const Json context = template_context(fields, model, std::move(*messages), generation_prompt);
  if (!fields.status().ok()) return fields.status();

  auto spans = chat_template->render(context, unix_time_s());
  if (!spans.ok()) return spans.status();
  if (continue_final) {
    const Status cut = cut_after(last, *spans);
    if (!cut.ok()) return cut;
  }
  return model.tokenizer->encode_spans(*spans, add_special_tokens);
}

}  // namespace baton
