#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/text/regex.h"

#include <pcre2.h>

#include "base/check.h"

namespace baton {
namespace {

// Backtracking steps for one match. A run of some millions of blanks reaches it.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr size_t kJitStackStartBytes = 32 * 1024;
constexpr size_t kJitStackBytesMax = 1024 * 1024;

std::string pcre2_message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

std::string error_name(int error) {
  switch (error) {
    case PCRE2_ERROR_MATCHLIMIT:
      return "MATCHLIMIT";
    case PCRE2_ERROR_JIT_STACKLIMIT:
      return "JIT_STACKLIMIT";
    case PCRE2_ERROR_NOMEMORY:
      return "NOMEMORY";
    default:
      return "PCRE2 error " + std::to_string(error) + " (" + pcre2_message(error) + ")";
  }
}

}  // namespace

RegexScratch::RegexScratch()
    : match_data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      jit_stack_(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackBytesMax, nullptr)) {
  CHECK(match_data_ && context_ && jit_stack_) << "pcre2: out of memory";
  pcre2_set_match_limit(context_, kMatchLimit);
  pcre2_jit_stack_assign(context_, nullptr, jit_stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_jit_stack_free(jit_stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(match_data_);
}

void Regex::CodeDeleter::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Regex::Regex(std::string_view pattern, const std::string& subject) {
  const std::string translated = translate_regex(pattern, subject);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &error_offset,
                            nullptr));
  if (!code_) {
    throw ConfigError(subject + ": got \"" + std::string(pattern) + "\", which does not compile (" +
                      pcre2_message(error) + "), want a regular expression");
  }
  uint32_t match_empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &match_empty);
  if (match_empty) {
    throw ConfigError(subject + ": got \"" + std::string(pattern) +
                      "\", which matches the empty text, want one that does not");
  }
  error = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  if (error != 0) {
    throw ConfigError(subject + ": got \"" + std::string(pattern) + "\", which PCRE2 cannot JIT (" +
                      pcre2_message(error) + "), want a pattern that it can");
  }
}

Result<ByteRange> Regex::find(std::string_view text, size_t offset, RegexScratch* scratch) const {
  const int count =
      pcre2_jit_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset,
                      0, scratch->match_data_, scratch->context_);
  if (count == PCRE2_ERROR_NOMATCH) return ByteRange{text.size(), text.size()};
  if (count < 0) {
    return invalid_argument("pre-tokeniser: got " + error_name(count) + " at byte " +
                            std::to_string(offset) + " of " + std::to_string(text.size()) +
                            ", want text without runs of millions of like characters");
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch->match_data_);
  return ByteRange{range[0], range[1]};
}

}  // namespace baton
