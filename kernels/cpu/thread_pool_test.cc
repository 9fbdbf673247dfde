#include "kernels/cpu/thread_pool.h"

#include <chrono>

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("every task runs once, job after job") {
  for (int32_t threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK_EQ(pool.threads(), threads);
    for (int64_t count = 0; count < 300; ++count) {
      std::vector<int> runs(count);
      std::vector<int64_t> by_thread(threads);
      pool.parallel_for(count, [&](int64_t i, int32_t thread) {
        ++runs[i];
        ++by_thread[thread];
      });
      int64_t total = 0;
      for (int64_t n : by_thread) total += n;
      CHECK_EQ(total, count);
      for (int n : runs) CHECK_EQ(n, 1);
    }
  }
}

TEST_CASE("sleeping workers take part again") {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    // Long enough for the worker to give up spinning; either outcome is correct, so nothing depends
    // on the time.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<bool> worker_came{false};
    // The owner's task ends only when the worker has run one: it must have been woken.
    pool.parallel_for(2, [&](int64_t, int32_t thread) {
      if (thread == 1) {
        worker_came = true;
        worker_came.notify_all();
      } else {
        worker_came.wait(false);
      }
    });
    CHECK(worker_came);
  }
}

}  // namespace
}  // namespace baton
