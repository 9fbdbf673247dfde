// Names of messages for RunResult::seen and for triggers: message_name(), and what scenarios are
// about.
#pragma once

#include <algorithm>
#include <string>

#include "base/messages.h"

namespace baton::sim {

// "GRANT, cached" for one that follows D's own prefix.
inline std::string message_label(const Message& message) {
  std::string label = message_name(message);
  if (const auto* grant = std::get_if<Grant>(&message); grant && grant->cached_tokens > 0)
    label += ", cached";
  if (const auto* reserve = std::get_if<Reserve>(&message); reserve && reserve->cached_tokens > 0)
    label += ", cached";
  if (const auto* prefill = std::get_if<Prefill>(&message); prefill && prefill->candidates.empty())
    label += ", alone";
  if (const auto* refuse = std::get_if<Refuse>(&message))
    label = refuse->kind == Refuse::Kind::kFull    ? "FULL"
            : refuse->kind == Refuse::Kind::kLocal ? "LOCAL"
                                                   : "GONE";
  if (const auto* ack = std::get_if<Ack>(&message); ack && !ack->accepted) label = "NAK";
  const auto* commit = std::get_if<Commit>(&message);
  const bool some_ended =
      commit != nullptr &&
      std::any_of(commit->first_tokens.begin(), commit->first_tokens.end(),
                  [](const auto& e) { return e.finish != FinishReason::kNone; });
  return some_ended ? label + ", some ended" : label;
}

}  // namespace baton::sim
