#include "router/openai_logprobs.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

// JSON has no infinity; this is what clients know instead.
double finite(float logprob) {
  constexpr double kFloor = -9999.0;
  return std::isfinite(logprob) ? std::max(static_cast<double>(logprob), kFloor) : kFloor;
}

int64_t characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

Json byte_list(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

}  // namespace

std::string ChoiceLogprobs::name(TokenId id) const {
  if (tokens_as_ids_) return "token_id:" + std::to_string(id);
  return decode(tokenizer_, {id}, false);
}

void ChoiceLogprobs::add(const TokenLogprob& token, const std::vector<TokenLogprob>* top) {
  const std::string token_name = name(token.token);
  if (kind_ == ApiKind::kChat) {
    const auto entry = [&](const TokenLogprob& one) {
      return Json{{"token", name(one.token)},
                  {"logprob", finite(one.logprob)},
                  {"bytes", byte_list(tokenizer_.token_bytes(one.token, false))}};
    };
    Json full = entry(token);
    full["top_logprobs"] = Json::array();
    if (top != nullptr) {
      for (const TokenLogprob& one : *top) full["top_logprobs"].push_back(entry(one));
    }
    entries_.push_back(std::move(full));
    return;
  }
  tokens_.push_back(token_name);
  offsets_.push_back(text_offset_);
  text_offset_ += characters(token_name);
  logprobs_.push_back(top == nullptr ? Json() : Json(finite(token.logprob)));
  if (top == nullptr) {
    tops_.push_back(nullptr);
    return;
  }
  Json map = Json::object();
  // Halves of characters share a name: the likeliest, which comes first, keeps it.
  for (const TokenLogprob& one : *top) map.emplace(name(one.token), finite(one.logprob));
  map.emplace(token_name, finite(token.logprob));
  tops_.push_back(std::move(map));
}

Json ChoiceLogprobs::take() {
  if (kind_ == ApiKind::kChat) return {{"content", std::exchange(entries_, Json::array())}};
  return {{"text_offset", std::exchange(offsets_, Json::array())},
          {"token_logprobs", std::exchange(logprobs_, Json::array())},
          {"tokens", std::exchange(tokens_, Json::array())},
          {"top_logprobs", std::exchange(tops_, Json::array())}};
}

Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenLogprob>& tokens,
                          const std::vector<std::vector<TokenLogprob>>& top) {
  Json list = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0) {
      list.push_back(nullptr);
      continue;
    }
    Json map = Json::object();
    const auto add = [&](const TokenLogprob& one) {
      map[std::to_string(one.token)] = {{"logprob", finite(one.logprob)},
                                        {"decoded_token", decode(tokenizer, {one.token}, false)}};
    };
    add(tokens[i]);
    if (i < top.size()) {
      int rank = 0;
      for (const TokenLogprob& one : top[i]) {
        add(one);
        map[std::to_string(one.token)]["rank"] = ++rank;
      }
    }
    list.push_back(std::move(map));
  }
  return list;
}

}  // namespace baton
