// NCCL without it, for the tests of transport "nccl": two ranks of this process, groups that end
// once both ranks have enqueued them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/gpu_fake.h"
#include "kvtransfer/nccl_api.h"

namespace baton {

class FakeNccl final : public NcclApi {
 public:
  explicit FakeNccl(FakeGpu& gpu) : gpu_(gpu) {}

  // What goes wrong. Set before it happens.
  std::atomic<bool> begin_fails{false};      // at once
  std::atomic<bool> never_joins{false};      // as if the other rank could not be reached
  std::atomic<bool> receiver_stalls{false};  // its groups do not get enqueued, for ever
  std::atomic<bool> kernels_hang{false};     // groups do not end
  std::atomic<bool> breaks{false};           // settled() says so
  std::atomic<bool> aborts_hang{false};      // until let_aborts_end()
  // What has been done.
  mutable std::atomic<int32_t> begun{0}, groups{0}, sends{0}, receives{0}, aborted{0},
      largest_group{0};

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
    ++begun;
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
    std::unique_lock lock(gpu_.mutex);
    gpu_.changed.wait(lock, [this] { return !aborts_hang; });
    End& end = *static_cast<End*>(comm);
    end.aborted = true;
    for (auto& group : std::exchange(end.pair->groups[static_cast<size_t>(end.rank)], {}))
      finish(*group);
    ++aborted;
  }
  void let_aborts_end() {
    {
      std::lock_guard lock(gpu_.mutex);
      aborts_hang = false;
    }
    gpu_.changed.notify_all();
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
