#include "model/tensor_store.h"

#include <cstring>
#include <filesystem>

#include "base/status.h"
#include "model/gguf_writer.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

std::string read_error(const MappedFile& file, int64_t offset, size_t bytes) {
  std::vector<std::byte> to(bytes);
  try {
    file.read("blk.0.attn_q.weight", offset, to);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a file's bytes can be read where they are mapped") {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += static_cast<char>(i % 251);
  const auto file = std::make_shared<const MappedFile>(write_test_file("bytes.bin", bytes));
  std::vector<std::byte> to(54'321);
  file->read("t", 12'345, to);
  CHECK(std::memcmp(to.data(), file->data() + 12'345, to.size()) == 0);
  CHECK(std::memcmp(to.data(), bytes.data() + 12'345, to.size()) == 0);
  file->read("t", 100'000, {});
}

TEST_CASE("a file that becomes shorter while a model loads is an error with its name, no signal") {
  const std::string path = write_test_file("shrinking.bin", std::string(100'000, 'x'));
  const auto file = std::make_shared<const MappedFile>(path);
  CHECK(read_error(*file, 90'000, 10'000) == "");
  std::filesystem::resize_file(path, 95'000);
  CHECK(read_error(*file, 90'000, 10'000) ==
        path + ": tensor 'blk.0.attn_q.weight': cannot read 5000 bytes at byte 95000: the file " +
            "ends there; it was cut short while in use");
}

TEST_CASE("a read that the system refuses is an error with its reason") {
  const auto file = std::make_shared<const MappedFile>(write_test_file("small.bin", "12345678"));
  const std::string error = read_error(*file, -8, 8);
  CHECK(error.find("small.bin: tensor 'blk.0.attn_q.weight': cannot read 8 bytes") !=
        std::string::npos);
  CHECK(error.find("Invalid argument") != std::string::npos);
}
