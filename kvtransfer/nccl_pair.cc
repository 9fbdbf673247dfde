#include "kvtransfer/nccl_pair.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace baton {
namespace {

using std::chrono::microseconds;

// A group is enqueued in some 50 us, a communicator made in some 50 ms.
constexpr microseconds kShortSleep{10};
constexpr int32_t kShortSleeps = 100;
constexpr microseconds kLongSleep{1000};
constexpr std::chrono::milliseconds kErrorLook{100};  // while nothing is asked of NCCL

}  // namespace

NcclPair::NcclPair(std::shared_ptr<const NcclApi> api, HandoffMemory& memory, PollLoop& loop,
                   const Spec& spec, std::unique_ptr<SharedMemory> scratch, Events events)
    : api_(std::move(api)),
      loop_(loop),
      spec_(spec),
      events_(std::move(events)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      // A kernel that has been aborted ends too: it has moved nothing.
      stream_(memory.make_marked_stream([this] {
        if (ending_) return;
        ++moved_;
        notify();
      })),
      scratch_(std::move(scratch)) {
  if (!wake_.valid()) throw ConfigError(std::string("nccl: eventfd: ") + strerror(errno));
  watch_ = loop.watch(wake_.get(), EPOLLIN, [this](uint32_t) { dispatch(); });
  thread_ = std::thread([this] { run(); });
}

NcclPair::~NcclPair() {
  end();
  thread_.join();
}

void NcclPair::move(std::vector<NcclMove> group) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(group));
  }
  changed_.notify_one();
}

void NcclPair::end() {
  {
    std::lock_guard lock(mutex_);
    if (ending_.exchange(true)) return;
  }
  changed_.notify_one();
  end_timeout_ = loop_.after_ms(spec_.end_timeout_ms, [this] {
    throw std::runtime_error("nccl: a communicator has not ended " +
                             std::to_string(spec_.end_timeout_ms) +
                             " ms after its abort: its kernels may still read or write");
  });
}

// ---- the pair's thread ----

void NcclPair::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // ns: settle() sleeps for microseconds
  try {
    stream_->use_in_this_thread();
    const Status status = work();
    if (!status.ok()) tell([&](News& news) { news.broken = status; });
  } catch (...) {
    lost_ = true;
    tell([failure = std::current_exception()](News& news) { news.failure = failure; });
  }
  finish();
}

// Until the end is wanted, or something fails.
Status NcclPair::work() {
  NcclId id{};
  if (spec_.rank == NcclRank::kSender) {
    const Result<NcclId> made = api_->make_id();
    if (!made.ok()) return made.status();
    id = *made;
    tell([&id](News& news) { news.id = id; });
  } else {
    id = *spec_.id;
  }
  Status status = api_->begin(&comm_, id, spec_.rank, spec_.ctas);
  if (status.ok()) status = settle();
  if (!status.ok() || ending_) return status;
  tell([](News& news) { news.ready = true; });

  std::unique_lock lock(mutex_);
  for (;;) {
    const bool woken =
        changed_.wait_for(lock, kErrorLook, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) return {};
    std::vector<NcclMove> group;
    if (woken) {
      group = std::move(jobs_.front());
      jobs_.pop_front();
    }
    lock.unlock();
    if (woken) status = api_->enqueue(comm_, spec_.rank, group, stream_->handle());
    if (status.ok()) status = settle();
    if (!status.ok() || ending_) return status;
    if (woken) stream_->mark();
    lock.lock();
  }
}

// Until what was begun is done on the host.
Status NcclPair::settle() {
  for (int32_t looks = 0; !ending_; ++looks) {
    const Result<bool> settled = api_->settled(comm_);
    if (!settled.ok()) return settled.status();
    if (*settled) break;
    std::this_thread::sleep_for(looks < kShortSleeps ? kShortSleep : kLongSleep);
  }
  return {};
}

void NcclPair::finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ending_.load(); });
  }
  if (!lost_) {
    if (comm_ != nullptr) api_->abort(comm_);
    stream_->drain();
    scratch_.reset();
  }
  tell([](News& news) { news.ended = true; });
}

template <typename Change>
void NcclPair::tell(Change change) {
  {
    std::lock_guard lock(mutex_);
    change(news_);
  }
  notify();
}

void NcclPair::notify() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof(one));  // full: it is told
}

// ---- the handoff thread ----

void NcclPair::dispatch() {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
  News news;
  {
    std::lock_guard lock(mutex_);
    news = std::exchange(news_, {});
  }
  if (news.failure) std::rethrow_exception(news.failure);
  const int64_t moved = moved_.exchange(0);
  // Any of these may end it.
  if (news.id && !ending_) events_.made_id(*news.id);
  if (news.ready && !ending_) events_.ready();
  if (moved > 0 && !ending_) events_.moved(moved);
  if (news.broken && !ending_) events_.broken(*news.broken);
  if (!news.ended) return;
  end_timeout_.reset();
  const std::function<void()> ended = events_.ended;  // outlives this object
  ended();
}

}  // namespace baton
