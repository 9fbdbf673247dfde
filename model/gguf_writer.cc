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

uint32_t gguf_type_id(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return 0;
    case Dtype::kF16:
      return 1;
    case Dtype::kBF16:
      return 30;
    case Dtype::kQ4_0:
      return 2;
    case Dtype::kQ4_1:
      return 3;
    case Dtype::kQ5_0:
      return 6;
    case Dtype::kQ5_1:
      return 7;
    case Dtype::kQ8_0:
      return 8;
    case Dtype::kQ4_K:
      return 12;
    case Dtype::kQ5_K:
      return 13;
    case Dtype::kQ6_K:
      return 14;
  }
  return 0;
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
