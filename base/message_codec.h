// Message <-> bytes, as MessagePack: an array [type, fields...] with the fields in the order of
// message_fields.h. Called by the links and their tests. Pure functions, any thread.
//
// The rule of versions. A type number is never used again and a field never changes its meaning:
// new fields are appended. A reader leaves out trailing fields that it does not know and keeps the
// default of those it does not get; an unknown type is the error kNotFound, which a link counts and
// passes over. Anything else needs a new kWireVersion (hello.h).
//
// Lists of numbers and the columns of Events are bin, little-endian; strings are bin too, since not
// all are UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "base/messages.h"
#include "base/status.h"

namespace baton {

// The largest message on the wire: 1M tokens with their candidates, or a long prompt's logprobs.
inline constexpr size_t kMessageBytesMax = 32 << 20;

inline constexpr size_t kTokenIdBytesMax = 5;  // encoded, anywhere in a message
// An upper bound of what a spec adds to a message.
size_t encoded_bytes_max(const SamplingSpec& spec);
// Elements of a list that is not of plain numbers (candidates, groups, bad words).
inline constexpr uint32_t kListLengthMax = 1 << 16;

std::string encode_message(const Message& message);

// Takes hostile bytes: kInvalidArgument with the reason, kNotFound for a type of a newer peer.
Result<Message> decode_message(std::string_view bytes);

}  // namespace baton
