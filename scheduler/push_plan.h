// Which pages of a prompt go to the decode worker, and when. Pure functions, used by the scheduler.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/engine.h"
#include "model/kv_layout.h"
#include "scheduler/page_table.h"
#include "scheduler/scheduler.h"

namespace baton {

// The pages that are complete at `end` and were not at `begin`: those whose last token lies in
// [begin, end), and with `prompt_ends` the partial last one. Pages wholly below
// target.cached_tokens, or before a group's first_token, are not pushed.
std::vector<PushPage> pages_to_push(const KvLayout& layout, const PushTarget& target,
                                    const PageTable& pages, int32_t begin, int32_t end,
                                    bool prompt_ends);

// INVALID_ARGUMENT unless the grant has a page for every position from cached_tokens on that a
// decode after `tokens` positions sees, each page once.
Status check_grant(const KvLayout& layout, const PushTarget& target, int32_t tokens);

}  // namespace baton
