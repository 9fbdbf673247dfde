// JSON in and out of text, with limits on nesting, because recursion over hostile depth ends a
// process, and on the members of an object. Any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton {

using Json =
    nlohmann::ordered_json;  // keeps the order of keys, which chat templates show to the model

// Errors: INVALID_ARGUMENT for text that is not one JSON object, for invalid UTF-8, for more than
// `depth_max` levels and for more than 1024 members in an object. A long list of token ids as
// "prompt", or in the list that is "prompt", is packed: see packed_ids.
Result<Json> parse_json_object(std::string_view text, int32_t depth_max);

// The numbers of a list that parse_json_object has packed (as int32 in Json's binary type: a Json
// for each would be most of what a long prompt costs), in the caller's `json`. Nothing for any
// other value.
std::optional<std::span<const int32_t>> packed_ids(const Json& json);

// Appends `text` (valid UTF-8) with quotes and escapes; also of Unicode's line ends, so that what
// is written is one line for every client.
void append_json_string(std::string& out, std::string_view text);

// Compact, on one line as above. Bytes that are not UTF-8 become U+FFFD.
std::string dump_json(const Json& value);

}  // namespace baton
