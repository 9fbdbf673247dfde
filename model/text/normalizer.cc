#include "model/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "model/text/utf8.h"

namespace baton {
namespace {

constexpr uint16_t kNoDecomposition = 0xFFFF;
constexpr uint16_t kNoComposition = 0xFFFF;
constexpr uint16_t kComposesAsSecond = 0x8000;  // utf8proc's mark in comb_index

bool is_vowel_or_final_jamo(char32_t c) {
  return (c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2);
}

// True if nothing before the character can change it, and it cannot change anything before it.
bool begins_segment(char32_t c) {
  if (c < 0x80) return true;
  const utf8proc_property_t& p = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  const bool is_second = p.comb_index != kNoComposition && p.comb_index >= kComposesAsSecond;
  return p.combining_class == 0 && p.decomp_seqindex == kNoDecomposition && !is_second &&
         !is_vowel_or_final_jamo(c);
}

void append_nfc(std::string_view segment, std::string* out) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(segment.data()),
                   static_cast<utf8proc_ssize_t>(segment.size()), &mapped, options);
  CHECK(size >= 0) << "NFC of " << segment.size() << " bytes: " << utf8proc_errmsg(size);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  out->append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

struct Segment {
  size_t end;
  bool may_change;
};

// The segment that begins at `begin`: a run of unchanging characters, or one character with all
// that may compose with it.
Segment next_segment(std::string_view text, size_t begin) {
  size_t last = begin;  // the last character that begins a segment
  size_t offset = begin;
  while (offset < text.size()) {
    const CodePoint character = decode_utf8(text, offset);
    if (!begins_segment(character.value)) break;
    last = offset;
    offset += character.bytes;
  }
  if (offset == text.size()) return {offset, false};
  if (last > begin) return {last, false};
  while (offset < text.size()) {
    const CodePoint character = decode_utf8(text, offset);
    if (begins_segment(character.value)) break;
    offset += character.bytes;
  }
  return {offset, true};
}

// Moves the ends of `ranges` that lie in a segment to the segment's new place.
class RangeMover {
 public:
  explicit RangeMover(std::vector<ByteRange>* ranges) : source_(*ranges), ranges_(*ranges) {}

  void move(ByteRange from, ByteRange to, bool changed) {
    while (begin_ < source_.size() && source_[begin_].begin < from.end) {
      ranges_[begin_].begin = changed ? to.begin : to.begin + source_[begin_].begin - from.begin;
      ++begin_;
    }
    while (end_ < source_.size() && source_[end_].end <= from.end) {
      ranges_[end_].end = changed ? to.end : to.begin + source_[end_].end - from.begin;
      ++end_;
    }
  }

 private:
  const std::vector<ByteRange> source_;
  std::vector<ByteRange>& ranges_;
  size_t begin_ = 0, end_ = 0;  // the next boundary of each kind
};

}  // namespace

std::vector<ByteRange> clip_ranges(const std::vector<ByteRange>& ranges, ByteRange window) {
  std::vector<ByteRange> clipped;
  auto range = std::partition_point(ranges.begin(), ranges.end(),
                                    [&](const ByteRange& r) { return r.end <= window.begin; });
  for (; range != ranges.end() && range->begin < window.end; ++range) {
    clipped.push_back({std::max(range->begin, window.begin) - window.begin,
                       std::min(range->end, window.end) - window.begin});
  }
  return clipped;
}

bool overlaps_any(const std::vector<ByteRange>& ranges, ByteRange range) {
  const auto first = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const ByteRange& r) { return r.end <= range.begin; });
  return first != ranges.end() && first->begin < range.end;
}

std::string to_nfc(std::string_view text, std::vector<ByteRange>* ranges) {
  std::string normalized;
  normalized.reserve(text.size());
  RangeMover mover(ranges);
  for (size_t begin = 0; begin < text.size();) {
    const Segment segment = next_segment(text, begin);
    const std::string_view part = text.substr(begin, segment.end - begin);
    const size_t new_begin = normalized.size();
    if (segment.may_change) {
      append_nfc(part, &normalized);
    } else {
      normalized.append(part);
    }
    const bool changed = std::string_view(normalized).substr(new_begin) != part;
    mover.move({begin, segment.end}, {new_begin, normalized.size()}, changed);
    begin = segment.end;
  }
  return normalized;
}

}  // namespace baton
