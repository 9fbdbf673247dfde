// A GPU without one, for tests: the host's memory, of which a test replaces what it is about, and
// streams whose events a test opens by hand.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kvtransfer/handoff_memory.h"

namespace baton {

// The host's memory, said to be of `kind`.
class FakeMemory : public HandoffMemory {
 public:
  FakeMemory(Kind kind, bool waits_for_events) : kind_(kind), waits_for_events_(waits_for_events) {}
  Kind kind() const override { return kind_; }
  bool waits_for_events() const override { return waits_for_events_; }
  Result<Created> create(int64_t bytes) override { return host_->create(bytes); }
  Result<std::unique_ptr<SharedMemory>> allocate(int64_t bytes) override {
    return host_->allocate(bytes);
  }
  using HandoffMemory::import;
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
    return host_->make_marked_stream(std::move(passed));
  }
  std::unique_ptr<PageHasher> make_hasher(std::vector<PagePool*> pools) override {
    return host_->make_hasher(std::move(pools));
  }

 private:
  const Kind kind_;
  const bool waits_for_events_;
  const std::unique_ptr<HandoffMemory> host_ = make_host_handoff_memory();
};

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

// With streams.
class FakeGpuMemory final : public FakeMemory {
 public:
  FakeGpuMemory(FakeGpu& gpu, Kind kind) : FakeMemory(kind, true), gpu_(gpu) {}
  std::unique_ptr<MarkedStream> make_marked_stream(MarkedStream::Passed passed) override {
    auto stream = std::make_unique<FakeStream>(gpu_, std::move(passed));
    streams_.push_back(stream.get());
    return stream;
  }
  // Opens `event` for the streams that wait for it. The streams made so far are alive.
  void pass(FakeEvent& event) {
    std::lock_guard lock(gpu_.mutex);
    event.passed = true;
    for (FakeStream* stream : streams_) stream->advance();
  }

 private:
  FakeGpu& gpu_;
  std::vector<FakeStream*> streams_;
};

}  // namespace baton
