// What the state tables' tests put around one side of the handoff: what it sends and what it tells
// the mover is written down, nothing moves by itself.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/link.h"
#include "kvtransfer/page_mover.h"

namespace baton {

inline constexpr LinkId kRouterLink = 1;
inline constexpr Epoch kRouterEpoch = 77;
inline constexpr LinkId kPeerLink = 10, kOtherPeerLink = 11;
inline constexpr AttemptId kAttempt{{kRouterEpoch, 5}, 1};

// What has happened since the last call, in order: "DRAINED", "abort", ...
class Happenings {
 public:
  void add(std::string what) { happened_.push_back(std::move(what)); }
  std::vector<std::string> take() { return std::exchange(happened_, {}); }

 private:
  std::vector<std::string> happened_;
};

class WrittenOutbox final : public Outbox {
 public:
  explicit WrittenOutbox(Happenings& happenings) : happenings_(happenings) {}
  void send(LinkId link, Message message) override {
    const auto* ack = std::get_if<Ack>(&message);
    const auto* refuse = std::get_if<Refuse>(&message);
    std::string name = message_name(message);
    if (ack != nullptr && !ack->accepted) name = "NAK";
    if (refuse != nullptr) {
      name = refuse->kind == Refuse::Kind::kFull    ? "FULL"
             : refuse->kind == Refuse::Kind::kLocal ? "LOCAL"
                                                    : "GONE";
    }
    happenings_.add(name);
    sent.emplace_back(link, std::move(message));
  }
  void close(LinkId, const std::string&) override { happenings_.add("close"); }
  void connect(const std::string& address) override { wanted.insert(address); }
  void disconnect(const std::string& address) override { wanted.erase(address); }

  // The last message of that kind that was sent.
  template <typename T>
  const T& last() const {
    for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
      if (const T* message = std::get_if<T>(&it->second)) return *message;
    }
    throw std::logic_error("no such message was sent");
  }
  std::vector<std::pair<LinkId, Message>> sent;
  std::set<std::string> wanted;

 private:
  Happenings& happenings_;
};

class WrittenMover final : public PageMover {
 public:
  explicit WrittenMover(Happenings& happenings) : happenings_(happenings) {}
  std::string offer(LinkId) override { return "offer"; }
  void allow(LinkId, uint64_t, const std::vector<std::vector<int32_t>>&) override {}
  void disallow(uint64_t) override {}
  void verify(uint64_t, const std::vector<std::vector<int32_t>>&, const PagesDigest&) override {
    happenings_.add("verify");
  }
  bool stores_ourselves(const std::string& transport) const override { return transport == "tcp"; }
  void forget(LinkId) override {}
  void attach(LinkId, const std::string&, Lease) override {}
  void detach(LinkId) override {}
  void begin(TransferId transfer, LinkId, uint64_t) override {
    begun = transfer;
    happenings_.add("begin");
  }
  void push(const std::vector<PushPage>&) override {}
  void finish(TransferId, uint64_t) override { happenings_.add("finish"); }
  void abort(TransferId) override { happenings_.add("abort"); }
  void layer_written(const StepInput&, int32_t) override {}

  TransferId begun = 0;

 private:
  Happenings& happenings_;
};

// "gone, DRAINED, FAILED": the state it is in now, if it has changed, and what happened. "–" for
// nothing at all.
inline std::string cell_text(const std::string& before, const std::string& after,
                             const std::vector<std::string>& happened) {
  std::string text = before == after ? "" : after;
  for (const std::string& what : happened) text += (text.empty() ? "" : ", ") + what;
  return text.empty() ? "–" : text;
}

}  // namespace baton
