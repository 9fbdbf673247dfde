// The handoff and the cancels of the simulation, as prefill/ and decode/ do them.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "scheduler/page_table.h"
#include "scheduler/simulation.h"

namespace baton {

// D: its cached prefix pinned, the rest of the prompt's pages granted.
bool Simulation::reserve(size_t index) {
  Request& request = requests_[index];
  SimulatedWorker& d = *decode_;
  const auto tokens = static_cast<int32_t>(request.sequence.tokens.size());
  if (d.scheduler.preempted_waiting()) return false;
  PrefixHit hit = d.cache.match(request.sequence.tokens, request.sequence.prompt_len - 1,
                                request.sequence.spec.cache_salt);
  Transfer transfer;
  transfer.id = 1000 + index;
  transfer.request = index;
  transfer.cached_tokens = hit.tokens;
  transfer.first_token = hit.first_token;
  transfer.landing = std::move(hit.pages);
  PushTarget target;
  target.transfer = transfer.id;
  target.cached_tokens = hit.tokens;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    const KvGroup& group = layout_.groups[g];
    const auto number = static_cast<int32_t>(g);
    const int32_t seen_from = first_visible(group, tokens) / group.page_tokens * group.page_tokens;
    GrantGroup granted;
    granted.first_token = std::max(hit.tokens, seen_from);
    if (granted.first_token > hit.tokens) {  // the cached pages are out of the window by then
      transfer.landing[g].clear();
      transfer.first_token[g] = granted.first_token;
    }
    const int32_t count = group.pages_for(tokens) - granted.first_token / group.page_tokens;
    std::vector<PageRef> pages = d.ledger.take(number, std::max(0, count), PageState::kGranted);
    if (pages.empty() && count > 0) return false;
    for (PageRef& page : pages) {
      granted.page_ids.push_back(page.page_id());
      FakePage& cells = d.engine.page(number, page.page_id());
      std::fill(cells.begin(), cells.end(), FakeCell{88, 888, 0x888});
      transfer.landing[g].push_back(std::move(page));
    }
    target.groups.push_back(std::move(granted));
  }
  Result<SeqId> seq = prefill_->scheduler.add_prompt(request.sequence, std::move(target));
  if (!seq.ok()) throw std::logic_error(seq.status().to_string());
  request.at_prefill = *seq;
  transfers_.push_back(std::move(transfer));
  ++counts_.handoffs;
  return true;
}

void Simulation::copy_pages(const std::vector<PushPage>& pushes) {
  for (const PushPage& push : pushes) {
    const auto transfer = std::find_if(transfers_.begin(), transfers_.end(),
                                       [&](const Transfer& t) { return t.id == push.transfer; });
    if (transfer == transfers_.end()) throw std::logic_error("pushed into a grant that has ended");
    if (decode_->ledger.state(push.group, push.dst_page) != PageState::kGranted) {
      throw std::logic_error("pushed to a page that is not granted");
    }
    decode_->engine.page(push.group, push.dst_page) =
        prefill_->engine.page(push.group, push.src_page);
  }
}

void Simulation::prompt_done(PromptDone done) {
  if (!done.pushed) return;
  for (Transfer& transfer : transfers_) {
    if (requests_[transfer.request].at_prefill != done.seq || transfer.cancelled) continue;
    transfer.source = std::move(done.pages);
    transfer.first_tokens = std::move(done.first_tokens);
    transfer.computed = true;
  }
}

// COMMIT: the pages that were ready at the start are copied as late as possible.
void Simulation::land(size_t which) {
  Transfer transfer = std::move(transfers_[which]);
  copy_pages_of(transfer);
  transfers_.erase(transfers_.begin() + static_cast<int64_t>(which));
  Request& request = requests_[transfer.request];
  request.at_prefill = 0;
  const bool all = std::all_of(
      transfer.first_tokens.begin(), transfer.first_tokens.end(), [&](const TokenEvent& e) {
        return e.finish != FinishReason::kNone ||
               request
                   .cancelled[static_cast<size_t>(e.choice - request.sequence.spec.first_choice)];
      });
  if (all && below(2) == 0) return;  // DRAINED instead
  std::vector<TokenEvent> first_tokens = transfer.first_tokens;
  std::erase_if(first_tokens, [&](const TokenEvent& e) {
    return request.cancelled[static_cast<size_t>(e.choice - request.sequence.spec.first_choice)];
  });
  LandedPages landed;
  landed.first_token = transfer.first_token;
  for (std::vector<PageRef>& group : transfer.landing) {
    for (const PageRef& page : group) {
      const bool granted =
          decode_->ledger.state(page.group(), page.page_id()) == PageState::kGranted;
      if (granted) decode_->ledger.set_state(page, PageState::kUsed);
    }
  }
  landed.pages = std::move(transfer.landing);
  request.at_decode =
      decode_->scheduler.add_landed(request.sequence, std::move(landed), first_tokens);
}

void Simulation::copy_pages_of(const Transfer& transfer) {
  for (const PushPage& push : transfer.ready) {
    decode_->engine.page(push.group, push.dst_page) =
        prefill_->engine.page(push.group, push.src_page);
  }
}

void Simulation::drop_cancelled(uint64_t completed_step) {
  std::erase_if(transfers_, [&](const Transfer& transfer) {
    return transfer.cancelled && transfer.last_step <= completed_step;
  });
}

std::string Simulation::stage_of(size_t index) const {
  const Request& request = requests_[index];
  if (request.at_decode != 0) return decode_->scheduler.stage(request.at_decode);
  if (request.at_prefill != 0) {
    const std::string stage = prefill_->scheduler.stage(request.at_prefill);
    return stage.empty() ? "transferring" : stage;
  }
  return request.pushed ? "reserving" : "";
}

void Simulation::cancel_something() {
  if (requests_.empty()) return;
  const auto index = static_cast<size_t>(below(static_cast<int32_t>(requests_.size())));
  Request& request = requests_[index];
  const int32_t n = request.sequence.spec.n;
  int32_t choice = below(2) == 0 ? -1 : below(n);
  std::erase(waiting_for_grant_, index);
  const bool reserved = request.at_prefill != 0 || request.at_decode != 0;
  if (!reserved) choice = -1;
  for (int32_t i = 0; i < n; ++i) {
    const auto place = static_cast<size_t>(i);
    if (choice >= 0 && choice != i) continue;
    if (!request.ended[place]) request.ended[place] = request.cancelled[place] = true;
  }
  ++counts_.cancels;
  ++counts_.cancelled_at[stage_of(index)];
  const int32_t number = choice < 0 ? -1 : request.sequence.spec.first_choice + choice;
  if (request.at_decode != 0) decode_->scheduler.cancel(request.at_decode, number);
  if (request.at_prefill == 0) return;
  const SeqId seq = request.at_prefill;
  GroupPages pages = prefill_->scheduler.cancel(seq, number);
  const bool gone = std::string(prefill_->scheduler.stage(seq)).empty();
  for (Transfer& transfer : transfers_) {
    if (transfer.request != index || transfer.computed || transfer.cancelled || !gone) continue;
    transfer.cancelled = true;
    transfer.source = std::move(pages);
    transfer.last_step = prefill_->in_flight.empty() ? 0 : prefill_->in_flight.back().step;
    request.at_prefill = 0;
  }
  if (prefill_->in_flight.empty()) drop_cancelled(0);
}

}  // namespace baton
