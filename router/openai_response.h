// Answers as OpenAI's clients read them: whole JSON bodies and SSE chunks. Formats only; counts and
// decides nothing. Router loop thread only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/messages.h"
#include "router/json_text.h"
#include "router/openai_request.h"

namespace baton {

struct UsageCounts {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

// Worker ids in the order in which they came to serve; several after a loss, or for several
// prompts.
struct ServedBy {
  std::vector<std::string> prefill;
  std::vector<std::string> decode;
};

using StopReason = std::variant<std::monostate, std::string, TokenId>;

// One choice, whole (in a body) or in part (in a chunk).
struct ChoicePart {
  int32_t index = 0;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  StopReason stop_reason;
  Json logprobs;  // null: none
  std::optional<Json> prompt_logprobs;
  std::optional<std::vector<TokenId>> token_ids;
  const ServedBy* workers = nullptr;  // to be named in this chunk; null: not
};

class ResponseWriter {
 public:
  // `id` without the prefix of its kind.
  ResponseWriter(ApiKind kind, const std::string& id, int64_t created_s, const std::string& model);

  // `workers` null: the answer does not name them.
  std::string body(const std::vector<ChoicePart>& choices, const UsageCounts& usage,
                   const ServedBy* workers = nullptr) const;

  // Server-sent events, complete with "data: " and the blank line. `usage` null: the chunk has
  // none.
  std::string role_chunk(int32_t index, const UsageCounts* usage) const;
  std::string chunk(const ChoicePart& part, const UsageCounts* usage) const;
  std::string usage_chunk(const UsageCounts& usage) const;  // no choices
  static constexpr std::string_view kDone = "data: [DONE]\n\n";

 private:
  std::string finish_chunk(std::string choice, const UsageCounts* usage,
                           const ServedBy* workers = nullptr) const;

  const ApiKind kind_;
  const std::string id_;
  const int64_t created_s_;
  const std::string model_;
  std::string chunk_head_;  // of every chunk, up to its choices: id, created and model never change
};

const char* finish_name(FinishReason finish);  // "stop", "length", "abort", "error"

}  // namespace baton
