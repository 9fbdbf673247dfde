#include "model/text/jinja_render_context.h"

#include "model/text/jinja_value.h"

namespace baton::jinja {

Charge::~Charge() {
  if (context_) context_->memory_bytes_ -= bytes_;
}

void Charge::grow(int64_t bytes) {
  if (!context_) return;
  Charge more = context_->charge(bytes);
  bytes_ += std::exchange(more.bytes_, 0);
}

RenderContext::~RenderContext() {
  for (const auto& ns : namespaces_) ns->attributes.clear();
}

void RenderContext::step(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps_max) {
    throw RenderError("steps_max: more than " + std::to_string(limits_.steps_max) + " steps");
  }
}

Charge RenderContext::charge(int64_t bytes) {
  work(bytes);
  if (bytes > limits_.memory_bytes_max - memory_bytes_) {
    throw RenderError("memory_bytes_max: values need more than " +
                      std::to_string(limits_.memory_bytes_max) + " bytes");
  }
  memory_bytes_ += bytes;
  return Charge(this, bytes);
}

void RenderContext::check_value_depth(int32_t depth) const {
  if (depth > limits_.depth_max) {
    throw RenderError("depth_max: a value nested deeper than " + std::to_string(limits_.depth_max));
  }
}

void RenderContext::enter() {
  if (depth_ >= limits_.depth_max) {
    throw RenderError("depth_max: blocks, expressions and macro calls nested deeper than " +
                      std::to_string(limits_.depth_max));
  }
  ++depth_;
}

}  // namespace baton::jinja
