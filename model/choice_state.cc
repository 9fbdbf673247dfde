#include "model/choice_state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

bool contains(const std::vector<TokenId>& ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

// Ids come from clients; the router checks them, and a wrong one must not write outside the row.
bool in_vocab(TokenId token, int32_t vocab_size) {
  return token >= 0 && token < vocab_size;
}

void exclude(float* logits, int32_t vocab_size, const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    if (in_vocab(id, vocab_size)) logits[id] = kExcluded;
  }
}

void keep_only(float* logits, int32_t vocab_size, const std::vector<TokenId>& allowed) {
  std::vector<std::pair<TokenId, float>> kept;
  for (const TokenId id : allowed) {
    if (in_vocab(id, vocab_size)) kept.emplace_back(id, logits[id]);
  }
  std::fill(logits, logits + vocab_size, kExcluded);
  for (const auto& [id, logit] : kept) logits[id] = logit;
}

}  // namespace

ChoiceState::ChoiceState(SlotOpen open, int32_t context_len)
    : spec_(std::move(open.spec)),
      choice_(open.choice),
      context_len_(context_len),
      counts_tokens_(spec_.presence_penalty != 0 || spec_.frequency_penalty != 0 ||
                     spec_.repetition_penalty != 1) {
  CHECK(!open.tokens.empty()) << "slot " << open.slot << " without a prompt";
  CHECK_LE(open.prompt_len, static_cast<int32_t>(open.tokens.size())) << "slot " << open.slot;
  for (size_t i = 0; i < open.tokens.size(); ++i) {
    remember(open.tokens[i], static_cast<int32_t>(i) >= open.prompt_len);
  }
}

void ChoiceState::remember(TokenId token, bool generated) {
  ++next_position_;
  last_token_ = token;
  if (generated) generated_.push_back(token);
  if (counts_tokens_) counts_[token] += generated ? 1 : 0;
}

bool ChoiceState::adjusts() const {
  return counts_tokens_ || !spec_.logit_bias.empty() || !spec_.allowed_token_ids.empty() ||
         !spec_.bad_words.empty() || num_generated() < spec_.min_tokens;
}

void ChoiceState::adjust(float* logits, int32_t vocab_size) const {
  if (!spec_.allowed_token_ids.empty()) keep_only(logits, vocab_size, spec_.allowed_token_ids);
  exclude_bad_words(logits, vocab_size);
  if (num_generated() < spec_.min_tokens) {
    exclude(logits, vocab_size, spec_.eos_ids);
    exclude(logits, vocab_size, spec_.stop_ids);
  }
  for (const auto& [id, bias] : spec_.logit_bias) {
    if (in_vocab(id, vocab_size)) logits[id] += bias;
  }
  if (counts_tokens_) apply_penalties(logits, vocab_size);
}

void ChoiceState::exclude_bad_words(float* logits, int32_t vocab_size) const {
  for (const std::vector<TokenId>& word : spec_.bad_words) {
    if (word.empty() || word.size() - 1 > generated_.size()) continue;
    const auto tail = generated_.end() - static_cast<std::ptrdiff_t>(word.size() - 1);
    if (std::equal(tail, generated_.end(), word.begin()) && in_vocab(word.back(), vocab_size)) {
      logits[word.back()] = kExcluded;
    }
  }
}

// Repetition (Keskar et al. 2019): shrinks positive logits, grows negative ones, of every token
// seen. Frequency and presence: as in the OpenAI API, over generated tokens.
void ChoiceState::apply_penalties(float* logits, int32_t vocab_size) const {
  for (const auto& [id, count] : counts_) {
    if (!in_vocab(id, vocab_size)) continue;
    float& logit = logits[id];
    logit = logit > 0 ? logit / spec_.repetition_penalty : logit * spec_.repetition_penalty;
    logit -= spec_.frequency_penalty * static_cast<float>(count);
    if (count > 0) logit -= spec_.presence_penalty;
  }
}

ChoiceState::Ending ChoiceState::accept(TokenId token) {
  CHECK(!ended_) << "choice " << choice_ << " has ended";
  remember(token, true);
  Ending ending;
  if (!spec_.ignore_eos && contains(spec_.eos_ids, token)) {
    ending.finish = FinishReason::kStop;
  } else if (contains(spec_.stop_ids, token)) {
    ending = {.finish = FinishReason::kStop, .stop_id = token};
  } else if (num_generated() >= spec_.max_tokens || next_position_ >= context_len_) {
    ending.finish = FinishReason::kLength;
  }
  ended_ = ending.finish != FinishReason::kNone;
  return ending;
}

}  // namespace baton
