#include "model/choice_state.h"

#include <algorithm>
#include <limits>
#include <map>
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

std::vector<uint32_t> mask_of(const std::vector<TokenId>& ids, int32_t vocab_size) {
  if (ids.empty()) return {};
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab_size)));
  for (const TokenId id : ids) {
    if (in_vocab(id, vocab_size)) mask[static_cast<size_t>(id / 32)] |= 1U << (id % 32);
  }
  return mask;
}

// A token that is named more than once gets the sum, so that the order of the additions to its
// logit is no question.
std::vector<TokenBias> merged(const std::vector<std::pair<TokenId, float>>& biases,
                              int32_t vocab_size) {
  std::map<TokenId, float> sums;
  for (const auto& [id, bias] : biases) {
    if (in_vocab(id, vocab_size)) sums[id] += bias;
  }
  std::vector<TokenBias> result;
  for (const auto& [id, sum] : sums) result.push_back({id, sum});
  return result;
}

}  // namespace

ChoiceState::ChoiceState(SlotOpen open, int32_t context_len, int32_t vocab_size)
    : spec_(std::move(open.spec)),
      choice_(open.choice),
      context_len_(context_len),
      vocab_size_(vocab_size),
      has_penalties_(spec_.presence_penalty != 0 || spec_.frequency_penalty != 0 ||
                     spec_.repetition_penalty != 1),
      allowed_(mask_of(spec_.allowed_token_ids, vocab_size)),
      biases_(merged(spec_.logit_bias, vocab_size)) {
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
  if (has_penalties_ && in_vocab(token, vocab_size_)) counts_[token] += generated ? 1 : 0;
}

bool ChoiceState::adjusts(int32_t in_flight) const {
  return has_penalties_ || !biases_.empty() || !allowed_.empty() || !spec_.bad_words.empty() ||
         num_generated() + in_flight < spec_.min_tokens;
}

void ChoiceState::adjust(float* logits) const {
  for (size_t w = 0; w < allowed_.size(); ++w) {
    const auto first = static_cast<TokenId>(w) * 32;
    for (TokenId id = first; id < std::min(first + 32, vocab_size_); ++id)
      logits[id] = (allowed_[w] >> (id - first) & 1) != 0 ? logits[id] : kExcluded;
  }
  std::vector<TokenBan> bans;
  add_bans(0, &bans);
  for (const TokenBan& ban : bans) logits[ban.token] = kExcluded;
  for (const TokenBias& bias : biases_) logits[bias.token] += bias.bias;
  if (has_penalties_) apply_penalties(logits);
}

void ChoiceState::add_ban(TokenId token, TokenId after, std::vector<TokenBan>* bans) const {
  if (in_vocab(token, vocab_size_)) bans->push_back({token, after});
}

void ChoiceState::add_bans(int32_t in_flight, std::vector<TokenBan>* bans) const {
  for (const std::vector<TokenId>& word : spec_.bad_words) {
    if (word.empty()) continue;
    // The word's tokens that have to be there already: known ones, then the one in flight.
    const size_t before = word.size() - 1;
    const size_t unknown = before > 0 && in_flight > 0 ? 1 : 0;
    const size_t known = before - unknown;
    if (known > generated_.size()) continue;
    const auto tail = generated_.end() - static_cast<std::ptrdiff_t>(known);
    if (!std::equal(tail, generated_.end(), word.begin())) continue;
    if (unknown > 0 && word[known] < 0) continue;  // no token is that one
    add_ban(word.back(), unknown > 0 ? word[known] : -1, bans);
  }
  if (num_generated() + in_flight >= spec_.min_tokens) return;
  for (const std::vector<TokenId>* ids : {&spec_.eos_ids, &spec_.stop_ids}) {
    for (const TokenId id : *ids) add_ban(id, -1, bans);
  }
}

// Repetition (Keskar et al. 2019): shrinks positive logits, grows negative ones, of every token
// seen. Frequency and presence: as in the OpenAI API, over generated tokens.
void ChoiceState::apply_penalties(float* logits) const {
  for (const auto& [id, count] : counts_) {
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
