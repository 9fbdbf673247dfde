// Stand-ins for the router's tests: an outbox that keeps what is sent, and a sink that keeps what
// is told.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/link.h"
#include "router/generation.h"

namespace baton {

class FakeOutbox final : public Outbox {
 public:
  void send(LinkId link, Message message) override { sent_.emplace_back(link, std::move(message)); }
  void close(LinkId, const std::string&) override {}
  void connect(const std::string&) override {}
  void disconnect(const std::string&) override {}

  // Messages of one kind to a link since the last call for them.
  template <typename T>
  std::vector<T> take(LinkId link) {
    std::vector<T> taken;
    for (auto it = sent_.begin(); it != sent_.end();) {
      if (it->first == link && std::holds_alternative<T>(it->second)) {
        taken.push_back(std::get<T>(std::move(it->second)));
        it = sent_.erase(it);
      } else {
        ++it;
      }
    }
    return taken;
  }
  bool empty() const { return sent_.empty(); }

 private:
  std::vector<std::pair<LinkId, Message>> sent_;
};

struct RecordingSink final : GenerationSink {
  bool on_token(int32_t, const TokenEvent& event) override {
    tokens[event.choice].push_back(event.token);
    if (event.finish != FinishReason::kNone) finished[event.choice] = event.finish;
    return !(stop_at.contains(event.choice) && stop_at[event.choice] == event.token);
  }
  void on_prompt_logprobs(int32_t, const PromptLogprobs& logprobs) override {
    for (const TokenLogprob& token : logprobs.tokens) scored.push_back(token.token);
  }
  void on_workers(int32_t, const std::string& prefill, const std::string& decode) override {
    workers.push_back(prefill + ">" + decode);
  }
  void on_cached_tokens(int32_t, int32_t tokens_cached) override {
    cached.push_back(tokens_cached);
  }
  void on_failed(int32_t, const Status& status) override { failures.push_back(status); }

  std::map<int32_t, std::vector<TokenId>> tokens;
  std::vector<std::string> workers;  // "prefill>decode"
  std::map<int32_t, FinishReason> finished;
  std::map<int32_t, TokenId> stop_at;  // choice -> token that completes a stop string
  std::vector<TokenId> scored;
  std::vector<int32_t> cached;
  std::vector<Status> failures;
};

}  // namespace baton
