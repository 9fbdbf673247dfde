// NCCL and a GPU's streams without either, for the tests of transport "nccl": two ranks of this
// process, groups that end once both ranks have enqueued them, events that a test opens by hand.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/nccl_api.h"

namespace baton {

// What the streams, events and communicators of a test share: one lock, one wake-up.
struct FakeGpu {
  std::mutex mutex;
  std::condition_variable changed;
};

struct FakeEvent {
  bool passed = false;
};

// Work that ends in order.
class FakeStream final : public MarkedStream {
 public:
  FakeStream(FakeGpu& gpu, Passed passed) : gpu_(gpu), passed_(std::move(passed)) {}
  ~FakeStream() override { drain(); }
  void* handle() const override { return const_cast<FakeStream*>(this); }
  void use_in_this_thread() override {}
  void wait_for(void* event) override {
    std::lock_guard lock(gpu_.mutex);
    add(static_cast<FakeEvent*>(event));
  }
  void mark() override {
    std::lock_guard lock(gpu_.mutex);
    items_.push_back({.mark = true});
    advance();
  }
  void drain() noexcept override {
    std::unique_lock lock(gpu_.mutex);
    gpu_.changed.wait(lock, [this] { return items_.empty(); });
  }
  // Both with the lock held.
  void add(std::shared_ptr<FakeEvent> event) {
    items_.push_back({.event = event.get(), .owned = std::move(event)});
  }
  void advance() {
    while (!items_.empty() && (items_.front().mark || items_.front().event->passed)) {
      if (items_.front().mark) passed_();
      items_.pop_front();
    }
    gpu_.changed.notify_all();
  }

 private:
  struct Item {
    bool mark = false;
    FakeEvent* event = nullptr;
    std::shared_ptr<FakeEvent> owned;
  };
  void add(FakeEvent* event) { items_.push_back({.event = event}); }

  FakeGpu& gpu_;
  const Passed passed_;
  std::deque<Item> items_;
};

// The host's memory, said to be a GPU's.
class FakeGpuMemory final : public HandoffMemory {
 public:
  explicit FakeGpuMemory(FakeGpu& gpu) : gpu_(gpu) {}
  Kind kind() const override { return Kind::kCuda; }
  bool waits_for_events() const override { return true; }
  Result<Created> create(int64_t bytes) override { return host_->create(bytes); }
  Result<std::unique_ptr<SharedMemory>> allocate(int64_t bytes) override {
    return host_->allocate(bytes);
  }
  Result<std::unique_ptr<SharedMemory>> import(int fd, int64_t bytes) override {
    return host_->import(fd, bytes);
  }
  Status read(void* host, const std::byte* from, int64_t bytes) override {
    return host_->read(host, from, bytes);
  }
  Status write(std::byte* to, const void* host, int64_t bytes) override {
    return host_->write(to, host, bytes);
  }
  std::unique_ptr<CopyQueue> make_queue(PollLoop& loop, CopyQueue::Done done) override {
    return host_->make_queue(loop, std::move(done));
  }
  std::unique_ptr<MarkedStream> make_marked_stream(MarkedStream::Passed passed) override {
    auto stream = std::make_unique<FakeStream>(gpu_, std::move(passed));
    streams_.push_back(stream.get());
    return stream;
  }
  std::unique_ptr<PageHasher> make_hasher(std::vector<PagePool*> pools) override {
    return host_->make_hasher(std::move(pools));
  }
  // Opens `event` for the streams that wait for it. The streams made so far are alive.
  void pass(FakeEvent& event) {
    std::lock_guard lock(gpu_.mutex);
    event.passed = true;
    for (FakeStream* stream : streams_) stream->advance();
  }

 private:
  FakeGpu& gpu_;
  const std::unique_ptr<HandoffMemory> host_ = make_host_handoff_memory();
  std::vector<FakeStream*> streams_;
};

class FakeNccl final : public NcclApi {
 public:
  explicit FakeNccl(FakeGpu& gpu) : gpu_(gpu) {}

  // What goes wrong. Set before it happens.
  std::atomic<bool> begin_fails{false};      // at once
  std::atomic<bool> never_joins{false};      // as if the other rank could not be reached
  std::atomic<bool> receiver_stalls{false};  // its groups do not get enqueued, for ever
  std::atomic<bool> kernels_hang{false};     // groups do not end
  std::atomic<bool> breaks{false};           // settled() says so
  // What has been done.
  mutable std::atomic<int32_t> groups{0}, sends{0}, receives{0}, aborted{0}, largest_group{0};

  Result<NcclId> make_id() const override {
    std::lock_guard lock(gpu_.mutex);
    NcclId id{};
    const int32_t number = ++ids_;
    std::memcpy(id.data(), &number, sizeof(number));
    return id;
  }
  Status begin(NcclComm* comm, const NcclId& id, NcclRank rank, int32_t ctas) const override {
    if (ctas <= 0 || begin_fails) return unavailable("ncclCommInitRankConfig: injected");
    std::lock_guard lock(gpu_.mutex);
    std::shared_ptr<Pair>& pair = pairs_[id];
    if (pair == nullptr) pair = std::make_shared<Pair>();
    auto end = std::make_unique<End>();
    end->pair = pair;
    end->rank = rank;
    pair->ends += 1;
    *comm = end.get();
    ends_.push_back(std::move(end));
    return {};
  }
  Result<bool> settled(NcclComm comm) const override {
    if (breaks) return unavailable("NCCL: injected");
    std::lock_guard lock(gpu_.mutex);
    const End& end = *static_cast<End*>(comm);
    const bool stalls = end.enqueued && receiver_stalls && end.rank == NcclRank::kReceiver;
    return !stalls && !never_joins && end.pair->ends == 2;
  }
  Status enqueue(NcclComm comm, NcclRank rank, std::span<const NcclMove> moves,
                 void* stream) const override {
    std::lock_guard lock(gpu_.mutex);
    End& end = *static_cast<End*>(comm);
    if (end.rank != rank || end.aborted) return unavailable("ncclGroupEnd: wrong use");
    auto group = std::make_shared<Group>();
    group->moves.assign(moves.begin(), moves.end());
    group->stream = static_cast<FakeStream*>(stream);
    group->stream->add(std::shared_ptr<FakeEvent>(group, &group->ended));
    largest_group = std::max(largest_group.load(), static_cast<int32_t>(moves.size()));
    ++groups;
    ++(rank == NcclRank::kSender ? sends : receives);
    end.enqueued = true;
    end.pair->groups[static_cast<size_t>(rank)].push_back(std::move(group));
    if (!kernels_hang) match(*end.pair);
    return {};
  }
  void abort(NcclComm comm) const override {
    std::lock_guard lock(gpu_.mutex);
    End& end = *static_cast<End*>(comm);
    end.aborted = true;
    for (auto& group : std::exchange(end.pair->groups[static_cast<size_t>(end.rank)], {}))
      finish(*group);
    ++aborted;
  }

 private:
  struct Group {
    std::vector<NcclMove> moves;
    FakeStream* stream = nullptr;
    FakeEvent ended;
  };
  struct Pair {
    int32_t ends = 0;
    std::deque<std::shared_ptr<Group>> groups[2];  // by rank, not matched yet
  };
  struct End {
    std::shared_ptr<Pair> pair;
    NcclRank rank = NcclRank::kSender;
    bool enqueued = false;
    bool aborted = false;
  };

  static void finish(Group& group) {
    group.ended.passed = true;
    group.stream->advance();
  }
  static void match(Pair& pair) {
    while (!pair.groups[0].empty() && !pair.groups[1].empty()) {
      Group& from = *pair.groups[0].front();
      Group& to = *pair.groups[1].front();
      // What real ranks would hang on.
      CHECK_EQ(from.moves.size(), to.moves.size()) << "the ranks' groups differ";
      for (size_t i = 0; i < from.moves.size(); ++i) {
        CHECK_EQ(from.moves[i].bytes, to.moves[i].bytes) << "the ranks' moves differ";
        std::memcpy(to.moves[i].at, from.moves[i].at, static_cast<size_t>(to.moves[i].bytes));
      }
      finish(from);
      finish(to);
      pair.groups[0].pop_front();
      pair.groups[1].pop_front();
    }
  }

  FakeGpu& gpu_;
  mutable int32_t ids_ = 0;
  mutable std::map<NcclId, std::shared_ptr<Pair>> pairs_;
  mutable std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace baton
