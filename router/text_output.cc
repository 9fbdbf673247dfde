#include "router/text_output.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

TextOutput::TextOutput(const Tokenizer& tokenizer, std::shared_ptr<const TextOutputOptions> options)
    : options_(std::move(options)), detokenizer_(tokenizer, options_->skip_special_tokens) {}

bool TextOutput::push(const TokenEvent& event) {
  CHECK(finish_ == FinishReason::kNone) << "a token after the end of its choice";
  ++tokens_;
  // EOS and stop ids end the text; they are not part of it.
  const bool is_text = event.finish != FinishReason::kStop || options_->include_stop;
  if (is_text) add(detokenizer_.push(event.token));
  if (finish_ == FinishReason::kNone && event.finish != FinishReason::kNone) {
    add(detokenizer_.finish());
    if (finish_ == FinishReason::kNone) {
      release_all();
      finish_ = event.finish;
      if (event.stop_id) stop_reason_ = *event.stop_id;
    }
    return true;
  }
  return finish_ == FinishReason::kNone;
}

std::string TextOutput::take_text() {
  return std::exchange(ready_, {});
}

void TextOutput::add(std::string_view piece) {
  if (piece.empty()) return;
  text_ += piece;
  if (options_->stop.empty() || tokens_ < options_->min_tokens) return release_all();
  if (const std::optional<Match> match = find_stop()) {
    text_.resize(options_->include_stop ? match->end : match->begin);
    release_all();
    finish_ = FinishReason::kStop;
    stop_reason_ = options_->stop[match->stop];
    return;
  }
  const size_t certain = text_.size() - held_bytes();
  ready_.append(text_, 0, certain);
  text_.erase(0, certain);
}

void TextOutput::release_all() {
  ready_ += text_;
  text_.clear();
}

// The match that is complete first; of those, the one that began first. So the answer does not
// depend on where tokens end.
std::optional<TextOutput::Match> TextOutput::find_stop() const {
  std::optional<Match> best;
  for (size_t i = 0; i < options_->stop.size(); ++i) {
    const size_t begin = text_.find(options_->stop[i]);
    if (begin == std::string::npos) continue;
    const size_t end = begin + options_->stop[i].size();
    if (!best || end < best->end || (end == best->end && begin < best->begin)) {
      best = Match{begin, end, i};
    }
  }
  return best;
}

size_t TextOutput::held_bytes() const {
  size_t held = 0;
  for (const std::string& stop : options_->stop) {
    for (size_t n = std::min(stop.size() - 1, text_.size()); n > held; --n) {
      if (std::string_view(text_).substr(text_.size() - n) == std::string_view(stop).substr(0, n)) {
        held = n;
        break;
      }
    }
  }
  return held;
}

}  // namespace baton
