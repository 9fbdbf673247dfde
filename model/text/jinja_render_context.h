// What one render may use up: steps, depth and memory. Every allocation of the template engine is
// charged here and given back when the value dies. One a render; used by its thread only.
// Exceptions stay inside the engine: ChatTemplate::render turns RenderError into a Status (an
// interpreter that returns a Result from every expression is three times its size).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace baton::jinja {

struct Namespace;

class RenderError : public std::exception {
 public:
  explicit RenderError(std::string message, bool from_template = false)
      : message_(std::move(message)), from_template_(from_template) {}
  const char* what() const noexcept override { return message_.c_str(); }
  bool from_template() const {
    return from_template_;
  }  // raise_exception: its message is passed on as it is

 private:
  std::string message_;
  bool from_template_;
};

struct RenderLimits {
  int64_t steps_max = 0;
  int32_t depth_max = 0;
  int64_t output_bytes_max = 0;
  int64_t memory_bytes_max = 0;
};

class RenderContext;

// Bytes charged to a context; gives them back when it dies. Empty for the constants of a template.
class Charge {
 public:
  Charge() = default;
  Charge(RenderContext* context, int64_t bytes) : context_(context), bytes_(bytes) {}
  Charge(Charge&& other) noexcept
      : context_(std::exchange(other.context_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge();
  void grow(int64_t bytes);  // throws RenderError

 private:
  RenderContext* context_ = nullptr;
  int64_t bytes_ = 0;
};

class RenderContext {
 public:
  RenderContext(RenderLimits limits, int64_t now_unix_s)
      : limits_(limits), now_unix_s_(now_unix_s) {}
  // Namespaces are the only values that can hold themselves: their contents are dropped here.
  ~RenderContext();
  RenderContext(const RenderContext&) = delete;
  RenderContext& operator=(const RenderContext&) = delete;

  // All throw RenderError with the limit's name.
  void step(int64_t count = 1);
  void work(int64_t bytes) {
    step(bytes / kBytesPerStep);
  }                              // looking through long text costs steps too
  Charge charge(int64_t bytes);  // costs steps by size
  void check_value_depth(int32_t depth) const;
  void enter();
  void leave() { --depth_; }

  const RenderLimits& limits() const { return limits_; }
  int64_t now_unix_s() const { return now_unix_s_; }
  void keep(std::shared_ptr<Namespace> ns) { namespaces_.push_back(std::move(ns)); }

 private:
  friend class Charge;
  static constexpr int64_t kBytesPerStep = 64;

  const RenderLimits limits_;
  const int64_t now_unix_s_;
  int64_t steps_ = 0;
  int64_t memory_bytes_ = 0;
  int32_t depth_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// One level of nesting for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(RenderContext& context) : context_(context) { context_.enter(); }
  ~DepthGuard() { context_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  RenderContext& context_;
};

}  // namespace baton::jinja
