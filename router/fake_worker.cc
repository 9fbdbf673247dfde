#include "router/fake_worker.h"

#include <algorithm>
#include <chrono>

namespace baton {

FakeWorker::FakeWorker(Role role, std::string worker_id, int64_t step_us)
    : role_(role), step_us_(step_us), worker_id_(std::move(worker_id)) {
  const PeerInfo self{.worker_id = worker_id_,
                      .epoch = static_cast<Epoch>(clock_.now_us()),
                      .role = role,
                      .kv_compat_id = "fake",
                      .model_name = "fake",
                      .context_len = 4096,
                      .vocab_size = 258};
  links_ = std::make_unique<Links>(LinkConfig{}, self, "127.0.0.1:0", clock_,
                                   [this](LinkEvent event) { on_event(std::move(event)); });
  outbox_ = links_.get();
  thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
}

void FakeWorker::kill() {
  thread_ = {};
  links_.reset();
}

bool FakeWorker::wait_for_held(size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(5), [&] { return held_.size() == count; });
}

size_t FakeWorker::held() {
  std::lock_guard lock(mutex_);
  return held_.size();
}

void FakeWorker::on_event(LinkEvent event) {
  const auto* message = std::get_if<LinkMessage>(&event);
  if (message == nullptr) return;
  if (const auto* open = std::get_if<Open>(&message->message)) {
    on_open(message->link, *open);
  } else if (const auto* prefill = std::get_if<Prefill>(&message->message)) {
    on_prefill(message->link, *prefill);
  } else if (const auto* cancel = std::get_if<Cancel>(&message->message)) {
    std::lock_guard lock(mutex_);
    const auto it = held_.find(cancel->id);
    if (it == held_.end()) return;
    if (cancel->choice >= 0) it->second.next.erase(cancel->choice);
    if (cancel->choice < 0 || it->second.next.empty()) held_.erase(it);
  } else if (const auto* close = std::get_if<Close>(&message->message)) {
    std::lock_guard lock(mutex_);
    held_.erase(close->id);
  }
  changed_.notify_all();
}

void FakeWorker::on_open(LinkId link, const Open& open) {
  std::lock_guard lock(mutex_);
  Sequence& sequence = held_[open.id];
  sequence.open = open;
  sequence.router = link;
  sequence.decoding = open.local || arrived_.erase(open.id) > 0;
  for (int32_t i = 0; i < open.spec.n; ++i) {
    sequence.next[open.spec.first_choice + i] = static_cast<int32_t>(open.tokens.size());
  }
  if (!open.local) return;
  outbox_->send(link, Placed{open.id, worker_id_, true});
  outbox_->send(link, Usage{open.id, 3});
}

void FakeWorker::on_prefill(LinkId link, const Prefill& prefill) {
  const Open as_open{prefill.id, prefill.spec, prefill.prompt_len, prefill.tokens};
  if (!prefill.candidates.empty()) {
    outbox_->send(link, Placed{prefill.id, prefill.candidates.front()});
  }
  outbox_->send(link, Usage{prefill.id, 3});
  if (prefill.spec.prompt_logprobs >= 0) {
    PromptLogprobs scored{.id = prefill.id};
    for (const TokenId token : prefill.tokens) {
      scored.tokens.push_back({token, -0.5F});
      scored.top.push_back({{token, -0.5F}});
    }
    outbox_->send(link, std::move(scored));
  }
  Events events;
  for (int32_t i = 0; i < prefill.spec.n; ++i) {
    events.events.push_back(token_at(as_open, prefill.spec.first_choice + i,
                                     static_cast<int32_t>(prefill.tokens.size())));
  }
  outbox_->send(link, std::move(events));
  if (handoff_ && !prefill.candidates.empty()) {
    handoff_(prefill.candidates.front(), prefill.id);
  }
}

void FakeWorker::decode(const AttemptId& id) {
  std::lock_guard lock(mutex_);
  const auto it = held_.find(id);
  if (it == held_.end()) {
    arrived_.insert(id);
  } else {
    it->second.decoding = true;
  }
}

TokenEvent FakeWorker::token_at(const Open& open, int32_t choice, int32_t position) {
  const int32_t index = position - open.prompt_len;
  TokenEvent event{.id = open.id, .choice = choice, .position = position};
  event.token = open.tokens[static_cast<size_t>(index % open.prompt_len)];
  event.logprob = -0.25F;
  event.top = {{event.token, -0.25F}};
  const bool ends = std::find(open.spec.eos_ids.begin(), open.spec.eos_ids.end(), event.token) !=
                    open.spec.eos_ids.end();
  if (ends && !open.spec.ignore_eos) event.finish = FinishReason::kStop;
  if (index + 1 == open.spec.max_tokens) event.finish = FinishReason::kLength;
  return event;
}

void FakeWorker::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, std::chrono::microseconds(step_us_), [] { return false; });
    if (!stop.stop_requested()) step();
  }
}

void FakeWorker::step() {
  std::map<LinkId, Events> events;
  for (auto it = held_.begin(); it != held_.end();) {
    Sequence& sequence = it->second;
    if (sequence.decoding) {
      for (auto next = sequence.next.begin(); next != sequence.next.end();) {
        TokenEvent event = token_at(sequence.open, next->first, next->second++);
        const bool ends = event.finish != FinishReason::kNone;
        events[sequence.router].events.push_back(std::move(event));
        next = ends ? sequence.next.erase(next) : std::next(next);
      }
    }
    it = sequence.next.empty() ? held_.erase(it) : std::next(it);
  }
  for (auto& [link, frame] : events) outbox_->send(link, std::move(frame));
  changed_.notify_all();
}

}  // namespace baton
