// A worker for tests: real links, no model. The token at generated index i is token i of the
// prompt, round and round, so a text repeats its prompt; an EOS in the prompt ends the choice. Its
// own thread makes one token a choice every `step_us`.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/link.h"
#include "base/messages.h"

namespace baton {

class FakeWorker {
 public:
  FakeWorker(Role role, std::string worker_id, int64_t step_us);  // step_us > 0
  ~FakeWorker() { kill(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(links_->port()); }
  // As kill -9 looks from outside. The address stays free for a successor.
  void kill();
  // Where a prefill worker's pages go: called with the decode worker's id when the first token is
  // out.
  using Handoff = std::function<void(const std::string& decode_worker, const AttemptId&)>;
  void on_prefilled(Handoff handoff) { handoff_ = std::move(handoff); }
  void decode(const AttemptId& id);  // the pages of an opened request have come

  // Waits until so many requests are held; false after 5 s.
  bool wait_for_held(size_t count);
  size_t held();

 private:
  struct Sequence {
    Open open;
    LinkId router = 0;
    bool decoding = false;
    std::map<int32_t, int32_t>
        next;  // choice -> position of its next token; finished ones are erased
  };

  void on_event(LinkEvent event);
  void on_open(LinkId link, const Open& open);
  void on_prefill(LinkId link, const Prefill& prefill);
  void run(std::stop_token stop);
  void step();
  static TokenEvent token_at(const Open& open, int32_t choice, int32_t position);

  const Role role_;
  const int64_t step_us_;
  const std::string worker_id_;
  const SystemClock clock_;
  Handoff handoff_;
  std::unique_ptr<Links> links_;
  Outbox* outbox_ =
      nullptr;  // links_, also while they are being destroyed and may still call on_event

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::map<AttemptId, Sequence> held_;
  std::set<AttemptId> arrived_;  // pages that came before their OPEN
  std::jthread thread_;
};

}  // namespace baton
