#include "model/gguf_writer.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace baton {

void GgufWriter::put_string(const std::string& text) {
  put<uint64_t>(text.size());
  bytes_ += text;
}

void GgufWriter::header(uint32_t version, int64_t num_tensors, int64_t num_values) {
  bytes_ += "GGUF";
  put(version);
  put(num_tensors);
  put(num_values);
}

void GgufWriter::value_u32(const std::string& key, uint32_t value) {
  put_string(key);
  put<uint32_t>(4);
  put(value);
}

void GgufWriter::value_f32(const std::string& key, float value) {
  put_string(key);
  put<uint32_t>(6);
  put(value);
}

void GgufWriter::value_string(const std::string& key, const std::string& value) {
  put_string(key);
  put<uint32_t>(8);
  put_string(value);
}

void GgufWriter::tensor_info(const std::string& name, const std::vector<int64_t>& dims,
                             uint32_t type, uint64_t offset) {
  put_string(name);
  put(static_cast<uint32_t>(dims.size()));
  for (const int64_t extent : dims) put(extent);
  put(type);
  put(offset);
}

std::string write_test_file(const std::string& name, const std::string& bytes) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("baton-test-" + std::to_string(::getpid())) / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path.string();
}

}  // namespace baton
