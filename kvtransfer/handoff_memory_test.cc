// What a GPU does to a handoff, without one: copies that wait for a layer's event, and calls that
// throw because the GPU is lost.
#include "kvtransfer/handoff_memory.h"

#include <deque>
#include <stdexcept>

#include "kvtransfer/gpu_fake.h"
#include "kvtransfer/test_rig.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// With a queue of the test's around the host's.
template <typename Queue>
class QueueMemory final : public FakeMemory {
 public:
  QueueMemory() : FakeMemory(Kind::kHost, true) {}
  std::unique_ptr<CopyQueue> make_queue(PollLoop& loop, CopyQueue::Done done) override {
    loop_ = &loop;
    return std::make_unique<Queue>(loop, FakeMemory::make_queue(loop, {}), std::move(done));
  }
  void wake() { loop_.load()->wake(); }

 private:
  std::atomic<PollLoop*> loop_{nullptr};
};

// An event is a std::atomic<bool>; copies are made in order, each once its event has passed.
class EventQueue final : public CopyQueue {
 public:
  EventQueue(PollLoop& loop, std::unique_ptr<CopyQueue> inner, Done done)
      : inner_(std::move(inner)), done_(std::move(done)) {
    hook_ = loop.before_sleep([this] { return before_sleep(); });
  }
  bool has_room() const override { return true; }
  bool copy(std::byte* dst, const std::byte* src, int64_t bytes, void* after) override {
    copies_.push_back({dst, src, bytes, static_cast<std::atomic<bool>*>(after)});
    return false;
  }
  Result<Measurement> measure(std::byte* target) override { return inner_->measure(target); }

 private:
  struct Copy {
    std::byte* dst;
    const std::byte* src;
    int64_t bytes;
    std::atomic<bool>* after;
  };
  bool before_sleep() {
    int64_t made = 0;
    for (; !copies_.empty(); ++made) {
      const Copy& next = copies_.front();
      if (next.after != nullptr && !next.after->load()) break;
      inner_->copy(next.dst, next.src, next.bytes, nullptr);
      copies_.pop_front();
    }
    if (made > 0) done_(made);
    return made == 0;
  }

  const std::unique_ptr<CopyQueue> inner_;
  const Done done_;
  std::deque<Copy> copies_;
  PollLoop::Watch hook_;
};

class ThrowingQueue final : public CopyQueue {
 public:
  ThrowingQueue(PollLoop&, std::unique_ptr<CopyQueue> inner, Done) : inner_(std::move(inner)) {}
  bool has_room() const override { return true; }
  bool copy(std::byte*, const std::byte*, int64_t, void*) override {
    throw std::runtime_error("push slices: the GPU has fallen off the bus");
  }
  Result<Measurement> measure(std::byte* target) override { return inner_->measure(target); }

 private:
  const std::unique_ptr<CopyQueue> inner_;
};

}  // namespace

TEST_CASE("an error that ends the handoff thread is told with its name, not a std::terminate") {
  SystemClock clock;
  TestPools pools;
  EventLog log;
  const std::unique_ptr<PageMover> p =
      make_page_mover({.transports = "mapped"}, pools.layout, pools.borrowed, "127.0.0.1", clock,
                      log.sink(), nullptr, std::make_shared<QueueMemory<ThrowingQueue>>());
  TestEnd d({.transports = "mapped"}, clock);
  p->attach(1, d.mover->offer(2), long_lease());
  REQUIRE_EQ(log.wait(MoverEvent::Kind::kAttached).link, 1);
  p->begin(5, 1, 9);
  p->push({{.transfer = 5, .group = 0, .src_page = 1, .dst_page = 2}});
  const MoverEvent broken = log.wait(MoverEvent::Kind::kBroken);
  CHECK_EQ(broken.error, "push slices: the GPU has fallen off the bus");
  // Calls that come before the process has ended are harmless.
  p->finish(5, 0);
  p->abort(5);
  p->detach(1);
}

TEST_CASE(
    "slices are enqueued before their layers are written, and go layer by layer as they are") {
  SystemClock clock;
  TestPools pools;
  EventLog log;
  pools.fill(7);
  const auto memory = std::make_shared<QueueMemory<EventQueue>>();
  const std::unique_ptr<PageMover> p =
      make_page_mover({.transports = "mapped"}, pools.layout, pools.borrowed, "127.0.0.1", clock,
                      log.sink(), nullptr, memory);
  TestEnd d({.transports = "mapped"}, clock);
  p->attach(1, d.mover->offer(2), long_lease());
  REQUIRE_EQ(log.wait(MoverEvent::Kind::kAttached).link, 1);
  std::array<std::atomic<bool>, 5> written{};
  std::array<void*, 5> events;
  for (size_t i = 0; i < events.size(); ++i) events[i] = &written[i];
  StepInput step{.step = 3};
  step.pushes = {{.transfer = 5, .group = 0, .src_page = 1, .dst_page = 2},
                 {.transfer = 5, .group = 1, .src_page = 3, .dst_page = 4}};
  p->begin(5, 1, 9);
  CHECK(p->layers_enqueued(step, events));
  p->finish(5, 3);
  for (std::atomic<bool>& layer : written) {
    CHECK_FALSE(same_page(pools, d.pools, step.pushes[1]));  // its last layer is the last of all
    layer = true;
    memory->wake();
  }
  CHECK_EQ(log.wait_any().kind, MoverEvent::Kind::kDone);
  for (const PushPage& page : step.pushes) CHECK(same_page(pools, d.pools, page));
}

TEST_CASE("an abort ends only when the copies that wait for a layer have been made") {
  SystemClock clock;
  TestPools pools;
  EventLog log;
  const auto memory = std::make_shared<QueueMemory<EventQueue>>();
  const std::unique_ptr<PageMover> p =
      make_page_mover({.transports = "mapped"}, pools.layout, pools.borrowed, "127.0.0.1", clock,
                      log.sink(), nullptr, memory);
  TestEnd d({.transports = "mapped"}, clock);
  p->attach(1, d.mover->offer(2), long_lease());
  REQUIRE_EQ(log.wait(MoverEvent::Kind::kAttached).link, 1);
  std::atomic<bool> written = false;
  std::array<void*, 5> events;
  events.fill(&written);
  StepInput step{.step = 3};
  step.pushes = {{.transfer = 5, .group = 0, .src_page = 1, .dst_page = 2}};
  p->begin(5, 1, 9);
  CHECK(p->layers_enqueued(step, events));
  // Another transfer that goes through the thread, and fails there, shows how far it has got.
  p->begin(6, 77, 9);
  CHECK_EQ(log.wait_any().transfer, 6);
  p->abort(5);
  p->begin(7, 77, 9);
  CHECK_EQ(log.wait_any().transfer, 7);
  CHECK(log.all().empty());
  written = true;
  memory->wake();
  const MoverEvent end = log.wait_any();
  CHECK_EQ(end.kind, MoverEvent::Kind::kAborted);
  CHECK_EQ(end.transfer, 5);
}

}  // namespace baton
