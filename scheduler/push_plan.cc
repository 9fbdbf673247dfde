// The push plan of one chunk.
#include "scheduler/push_plan.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace baton {

std::vector<PushPage> pages_to_push(const KvLayout& layout, const PushTarget& target,
                                    const PageTable& pages, int32_t begin, int32_t end,
                                    bool prompt_ends) {
  std::vector<PushPage> plan;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const auto group = static_cast<int32_t>(g);
    const int32_t page_tokens = layout.groups[g].page_tokens;
    const GrantGroup& granted = target.groups[g];
    const int32_t last = prompt_ends ? layout.groups[g].pages_for(end) : end / page_tokens;
    for (int32_t index = begin / page_tokens; index < last; ++index) {
      const int32_t first_pos = index * page_tokens;
      if (first_pos < granted.first_token) continue;
      if (first_pos + page_tokens <= target.cached_tokens) continue;
      const auto place = static_cast<size_t>((first_pos - granted.first_token) / page_tokens);
      if (place >= granted.page_ids.size()) break;
      const PageRef& source = pages.at(group, first_pos);
      if (!source) {  // had left the window within our cached prefix: nobody needs it
        CHECK_GT(layout.groups[g].window, 0) << "no page to push for position " << first_pos;
        continue;
      }
      plan.push_back({target.transfer, group, source.page_id(), granted.page_ids[place]});
    }
  }
  return plan;
}

Status check_grant(const KvLayout& layout, const PushTarget& target, int32_t tokens) {
  if (target.groups.size() != layout.groups.size()) {
    return invalid_argument("grant: got " + std::to_string(target.groups.size()) +
                            " kv_groups, want " + std::to_string(layout.groups.size()));
  }
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const KvGroup& group = layout.groups[g];
    const GrantGroup& granted = target.groups[g];
    const std::string subject = "grant of kv_group " + std::to_string(g);
    if (granted.first_token < 0 || granted.first_token % group.page_tokens != 0) {
      return invalid_argument(subject + ": got first_token " + std::to_string(granted.first_token) +
                              ", want a multiple of " + std::to_string(group.page_tokens));
    }
    const int32_t needed_from = std::max(target.cached_tokens, first_visible(group, tokens));
    const int64_t end =
        granted.first_token + static_cast<int64_t>(granted.page_ids.size()) * group.page_tokens;
    if (needed_from < tokens && (granted.first_token > needed_from || end < tokens)) {
      return invalid_argument(subject + ": got pages of positions " +
                              std::to_string(granted.first_token) + " to " + std::to_string(end) +
                              ", want " + std::to_string(needed_from) + " to " +
                              std::to_string(tokens));
    }
    std::vector<int32_t> ids = granted.page_ids;
    std::sort(ids.begin(), ids.end());
    if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end())
      return invalid_argument(subject + ": got page " + std::to_string(*twice) +
                              " twice, want each page once");
  }
  return {};
}

}  // namespace baton
