// The text of one choice, token by token: detokenised, stop strings found and cut, tokens and
// logprobs counted. The text is the same however the tokens are grouped. Owned by a client request;
// router loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/messages.h"
#include "model/text/tokenizer.h"

namespace baton {

struct TextOutputOptions {
  std::vector<std::string> stop;  // none empty
  bool include_stop = false;
  bool skip_special_tokens = true;
  int32_t min_tokens = 0;  // stop strings are not looked for before
};

class TextOutput {
 public:
  // `options` are shared by all choices of a request.
  TextOutput(const Tokenizer& tokenizer, std::shared_ptr<const TextOutputOptions> options);

  // Takes the choice's next token. False: a stop string is complete and the choice has ended with
  // it.
  bool push(const TokenEvent& event);

  // The text that has become certain since the last call.
  std::string take_text();
  bool has_text() const { return !ready_.empty(); }

  int32_t tokens() const { return tokens_; }
  FinishReason finish() const { return finish_; }
  // What ended it: nothing (EOS, length), a stop string or a stop token id.
  const std::variant<std::monostate, std::string, TokenId>& stop_reason() const {
    return stop_reason_;
  }

 private:
  void add(std::string_view piece);  // searches, releases what cannot be part of a stop string
  void release_all();
  struct Match {
    size_t begin = 0, end = 0;
    size_t stop = 0;
  };
  std::optional<Match> find_stop() const;
  size_t held_bytes() const;  // the longest end of text_ that may become a stop string

  std::shared_ptr<const TextOutputOptions> options_;
  Detokenizer detokenizer_;
  std::string text_;   // not released: may be the start of a stop string
  std::string ready_;  // released, not taken
  int32_t tokens_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  std::variant<std::monostate, std::string, TokenId> stop_reason_;
};

}  // namespace baton
