// How far a worker's start has come, for /startupz and /readyz. Written by the thread that starts
// it, read by any.
#pragma once

#include <atomic>
#include <string>

namespace baton {

class Startup {
 public:
  void loaded(double fraction) { loaded_.store(fraction); }  // of the weights, 0 to 1
  void finish() { finished_.store(true); }
  // What was written before finish() may be read once this is true.
  bool finished() const { return finished_.load(); }
  // "loading the model: 40 %"; of no meaning once finished.
  std::string stage() const {
    const double fraction = loaded_.load();
    if (fraction >= 1) return "the model is loaded, pages and links are being made";
    return "loading the model: " + std::to_string(static_cast<int>(fraction * 100)) + " %";
  }

 private:
  std::atomic<double> loaded_{0};
  std::atomic<bool> finished_{false};
};

}  // namespace baton
