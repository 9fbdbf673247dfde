// Bytes of a file that weights are read from while a model loads. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace baton {

// Shared: whoever has reads under way keeps the file open.
class WeightSource : public std::enable_shared_from_this<WeightSource> {
 public:
  virtual ~WeightSource() = default;
  // Fills `to` from byte `offset` on; waits for the disk. Throws ConfigError("<file>: tensor
  // '<tensor>': ...") when the bytes cannot be had.
  virtual void read(const std::string& tensor, int64_t offset, std::span<std::byte> to) const = 0;
};

}  // namespace baton
