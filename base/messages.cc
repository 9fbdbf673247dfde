#include "base/messages.h"

#include <array>
#include <cstdio>

namespace baton {

std::string to_string(const AttemptId& id) {
  char text[64];
  std::snprintf(text, sizeof text, "%llx-%llu/%u",
                static_cast<unsigned long long>(id.id.router_epoch),
                static_cast<unsigned long long>(id.id.sequence), id.attempt);
  return text;
}

const char* message_name(const Message& message) {
  // In the order of the variant's alternatives.
  static constexpr std::array kNames = {
      "OPEN",   "PREFILL", "CANCEL",    "CLOSE",   "RESERVE", "GRANT",
      "REFUSE", "COMMIT",  "ACK",       "RELEASE", "DRAINED", "DRAINED_ALL",
      "ATTACH", "PLACED",  "REFUSED",   "FAILED",  "EVENTS",  "PROMPT_LOGPROBS",
      "USAGE",  "STATUS",  "HEARTBEAT", "DRAINING"};
  static_assert(kNames.size() == std::variant_size_v<Message>, "a message without a name");
  return kNames[message.index()];
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
    case Role::kBoth:
      return "both";
    case Role::kRouter:
      return "router";
  }
  return "unknown";
}

}  // namespace baton
