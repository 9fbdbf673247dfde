#include "model/text/pretokenizer.h"

namespace baton {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Receives the alternation of text and delimiters in order, puts out pieces.
class PieceCollector {
 public:
  PieceCollector(std::string_view text, SplitBehavior behavior, std::vector<std::string_view>* out)
      : text_(text), behavior_(behavior), out_(*out) {}

  void add(ByteRange range, bool is_delimiter) {
    const bool joins = is_delimiter ? delimiter_joins() : text_joins();
    if (joins && has_current_) {
      current_.end = range.end;
    } else {
      flush();
      current_ = range;
      has_current_ = true;
      removed_ = is_delimiter && behavior_ == SplitBehavior::kRemoved;
    }
    previous_is_delimiter_ = is_delimiter;
  }

  void flush() {
    if (has_current_ && !removed_) {
      out_.push_back(text_.substr(current_.begin, current_.end - current_.begin));
    }
    has_current_ = false;
  }

 private:
  bool delimiter_joins() const {
    return (behavior_ == SplitBehavior::kMergedWithPrevious && !previous_is_delimiter_) ||
           (behavior_ == SplitBehavior::kContiguous && previous_is_delimiter_);
  }
  bool text_joins() const {
    return (behavior_ == SplitBehavior::kMergedWithNext && previous_is_delimiter_) ||
           (behavior_ == SplitBehavior::kContiguous && !previous_is_delimiter_);
  }

  const std::string_view text_;
  const SplitBehavior behavior_;
  std::vector<std::string_view>& out_;
  ByteRange current_;
  bool has_current_ = false;
  bool removed_ = false;
  bool previous_is_delimiter_ = false;
};

}  // namespace

void PreTokenizer::add_split(std::string_view pattern, SplitBehavior behavior, bool invert,
                             const std::string& subject) {
  Step& step = steps_.emplace_back();
  step.regex.emplace_back(pattern, subject);
  step.behavior = behavior;
  step.invert = invert;
}

void PreTokenizer::add_prefix_space() {
  steps_.emplace_back();
}

Status PreTokenizer::split(std::string_view text, PreTokenizerScratch* scratch) const {
  scratch->prefixed.clear();
  scratch->pieces.clear();
  if (!text.empty()) scratch->pieces.push_back(text);
  for (const Step& step : steps_) {
    scratch->next_pieces.clear();
    for (const std::string_view piece : scratch->pieces) {
      if (step.regex.empty()) {
        scratch->next_pieces.push_back(
            piece.starts_with(' ') ? piece : scratch->prefixed.emplace_back(" ").append(piece));
        continue;
      }
      PieceCollector collector(piece, step.behavior, &scratch->next_pieces);
      for (size_t offset = 0; offset < piece.size();) {
        const Result<ByteRange> match = step.regex[0].find(piece, offset, &scratch->regex);
        if (!match.ok()) return match.status();
        if (offset < match->begin) collector.add({offset, match->begin}, step.invert);
        if (match->begin < match->end) collector.add(*match, !step.invert);
        offset = match->end;
      }
      collector.flush();
    }
    std::swap(scratch->pieces, scratch->next_pieces);
  }
  return Status();
}

}  // namespace baton
