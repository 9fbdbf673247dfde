// A regular expression as vocabulary files hold them, compiled with PCRE2 JIT. Called by the
// pre-tokeniser. Regex is immutable and thread-safe; a RegexScratch belongs to one call.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/text/normalizer.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace baton {

// Rewrites a pattern of Oniguruma's Ruby syntax (what `tokenizers` compiles) into PCRE2's where the
// two differ: \s and \S are the property White_Space, \w is Oniguruma's set, ^ and $ match at every
// line. Throws ConfigError("<subject>: ...") for constructs of which we do not know that both
// engines agree.
std::string translate_regex(std::string_view pattern, const std::string& subject);

// Memory for matching: one a call of the tokeniser.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* match_data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* jit_stack_;
};

class Regex {
 public:
  // `subject` names the place in the file in error messages. Throws ConfigError, also for a pattern
  // that matches the empty text, which would not move on.
  Regex(std::string_view pattern, const std::string& subject);

  // The first match at or after `offset`; an empty range at the end of the text if there is none.
  // REQUIRES: `text` is valid UTF-8.
  // Errors: INVALID_ARGUMENT with PCRE2's name of the limit (MATCHLIMIT, JIT_STACKLIMIT).
  Result<ByteRange> find(std::string_view text, size_t offset, RegexScratch* scratch) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
};

}  // namespace baton
