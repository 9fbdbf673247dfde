// What the kernel benchmarks share: the machine's name, best-of-N timing and the speed of reading
// memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace baton {

inline std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

inline void print_machine(int32_t threads) {
  std::printf("machine: %s, %u CPUs, %d threads used\n", cpu_name().c_str(),
              std::thread::hardware_concurrency(), threads);
#ifndef NDEBUG
  std::printf("warning: assertions are on; build with CMAKE_BUILD_TYPE=Release for numbers\n");
#endif
}

// Seconds of the fastest of several runs: neighbours on the machine only ever make a run slower.
template <typename Run>
double best_seconds(int runs, const Run& run) {
  run();  // caches and the thread pool warm up
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

// Bytes per second at which `threads` threads together read `bytes` of memory: no kernel that reads
// its weights once can be faster.
inline double read_bytes_per_second(int32_t threads, int64_t bytes) {
  const std::vector<uint64_t> memory(bytes / 8, 1);
  const int64_t share = static_cast<int64_t>(memory.size()) / threads;
  std::vector<uint64_t> sums(threads);
  const double seconds = best_seconds(5, [&] {
    std::vector<std::thread> readers;
    for (int32_t t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] {
        uint64_t lanes[32] =
            {};  // independent sums, so that the additions do not wait for each other
        for (int64_t i = share * t; i + 32 <= share * (t + 1); i += 32) {
          for (int lane = 0; lane < 32; ++lane) lanes[lane] += memory[i + lane];
        }
        for (uint64_t lane : lanes) sums[t] += lane;
      });
    }
    for (std::thread& reader : readers) reader.join();
  });
  if (sums[0] == 0) std::printf("nothing was read\n");  // keeps the sums alive
  return static_cast<double>(bytes) / seconds;
}

}  // namespace baton
