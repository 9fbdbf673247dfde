// Unicode normalisation form C, keeping track of marked byte ranges. Called by the tokeniser; any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;  // exclusive
};

// The parts of `ranges` (ascending, disjoint) inside `window`, counted from its beginning.
std::vector<ByteRange> clip_ranges(const std::vector<ByteRange>& ranges, ByteRange window);

// True if any of `ranges` (ascending, disjoint) shares a byte with `range`.
bool overlaps_any(const std::vector<ByteRange>& ranges, ByteRange range);

// The NFC of `text`. REQUIRES: valid UTF-8. `ranges` (ascending, disjoint) are moved along; where a
// boundary falls between characters that are composed or reordered together, the range grows to
// hold all of them.
std::string to_nfc(std::string_view text, std::vector<ByteRange>* ranges);

}  // namespace baton
