// Splits text into the words that BPE then works on: a list of steps, each splitting every piece of
// the step before. Called by the tokeniser. Immutable after construction; thread-safe.
// Semantics: Hugging Face `tokenizers`, pre_tokenizers/ and NormalizedString::split.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/text/regex.h"

namespace baton {

// What becomes of a match. "a-b" split at "-": isolated a|-|b, removed a|b, merged with previous
// a-|b, merged with next a|-b; contiguous: as isolated, neighbouring matches as one.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// What `tokenizers` has fixed patterns for.
extern const std::string_view kGpt2Pattern;

// Memory of one call. Pieces point into the text, or into `prefixed`.
struct PreTokenizerScratch {
  RegexScratch regex;
  std::vector<std::string_view> pieces, next_pieces;
  std::deque<std::string> prefixed;
};

class PreTokenizer {
 public:
  // `subject` names the place in the file in error messages. Throws ConfigError as Regex does.
  // `invert`: what lies between the matches is the delimiter.
  void add_split(std::string_view pattern, SplitBehavior behavior, bool invert,
                 const std::string& subject);
  // A blank before each piece that does not begin with one.
  void add_prefix_space();

  // The words are scratch->pieces. REQUIRES: `text` is valid UTF-8 and outlives them.
  // Errors: INVALID_ARGUMENT, a limit of the pattern matcher by name.
  Status split(std::string_view text, PreTokenizerScratch* scratch) const;

 private:
  struct Step {
    std::vector<Regex> regex;  // none: prefix space
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
  };

  std::vector<Step> steps_;
};

}  // namespace baton
