#include "model/gguf.h"

#include <cstring>
#include <limits>

#include "base/status.h"
#include "model/gguf_cursor.h"

namespace baton {
namespace {

constexpr uint64_t kTensorNameBytesMax = 63;
constexpr uint32_t kDimsMax = 4;

struct FormatType {
  uint32_t id;
  Dtype dtype;
};
constexpr FormatType kTensorTypes[] = {
    {0, Dtype::kF32},   {1, Dtype::kF16},   {2, Dtype::kQ4_0},  {3, Dtype::kQ4_1},
    {6, Dtype::kQ5_0},  {7, Dtype::kQ5_1},  {8, Dtype::kQ8_0},  {12, Dtype::kQ4_K},
    {13, Dtype::kQ5_K}, {14, Dtype::kQ6_K}, {30, Dtype::kBF16},
};

bool known_scalar(uint32_t type) {
  return type <= static_cast<uint32_t>(GgufType::kF64) &&
         type != static_cast<uint32_t>(GgufType::kArray);
}

uint64_t min_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    default:
      return 8;  // 64-bit numbers; a string's length
  }
}

void read_element(GgufCursor& in, const std::string& key, GgufValue& value) {
  const char* what = "a metadata value";
  switch (value.type) {
    case GgufType::kU8:
      value.integers.push_back(in.read<uint8_t>(what));
      return;
    case GgufType::kI8:
      value.integers.push_back(in.read<int8_t>(what));
      return;
    case GgufType::kU16:
      value.integers.push_back(in.read<uint16_t>(what));
      return;
    case GgufType::kI16:
      value.integers.push_back(in.read<int16_t>(what));
      return;
    case GgufType::kU32:
      value.integers.push_back(in.read<uint32_t>(what));
      return;
    case GgufType::kI32:
      value.integers.push_back(in.read<int32_t>(what));
      return;
    case GgufType::kI64:
      value.integers.push_back(in.read<int64_t>(what));
      return;
    case GgufType::kF32:
      value.floats.push_back(in.read<float>(what));
      return;
    case GgufType::kF64:
      value.floats.push_back(in.read<double>(what));
      return;
    case GgufType::kString:
      value.strings.push_back(in.read_string(what));
      return;
    case GgufType::kU64: {
      const auto number = in.read<uint64_t>(what);
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        in.fail("metadata '" + key + "': " + std::to_string(number) + " is out of range");
      }
      value.integers.push_back(static_cast<int64_t>(number));
      return;
    }
    case GgufType::kBool: {
      const auto byte = in.read<uint8_t>(what);
      if (byte > 1) in.fail("metadata '" + key + "': boolean of " + std::to_string(byte));
      value.integers.push_back(byte);
      return;
    }
    case GgufType::kArray:
      break;
  }
  in.fail("metadata '" + key + "': nested array");
}

GgufValue read_value(GgufCursor& in, const std::string& key) {
  GgufValue value;
  auto type = in.read<uint32_t>("a metadata type");
  uint64_t count = 1;
  if (type == static_cast<uint32_t>(GgufType::kArray)) {
    value.is_array = true;
    type = in.read<uint32_t>("an array's type");
    if (type == static_cast<uint32_t>(GgufType::kArray)) {
      in.fail("metadata '" + key + "': nested array");
    }
  }
  if (!known_scalar(type)) {
    in.fail("metadata '" + key + "': unknown type " + std::to_string(type));
  }
  value.type = static_cast<GgufType>(type);
  if (value.is_array) count = in.read_count("an array's length", min_bytes(value.type));
  for (uint64_t i = 0; i < count; ++i) read_element(in, key, value);
  return value;
}

std::map<std::string, GgufValue> read_values(GgufCursor& in, uint64_t count) {
  std::map<std::string, GgufValue> values;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key = in.read_string("a metadata key");
    if (key.empty()) in.fail("empty metadata key");
    if (values.contains(key)) in.fail("metadata key '" + key.substr(0, 100) + "' appears twice");
    values.emplace(key, read_value(in, key));
  }
  return values;
}

// Fills dtype, shape and bytes of one tensor; returns its offset in the data section.
uint64_t read_tensor_info(GgufCursor& in, std::string* name, StoredTensor* tensor) {
  *name = in.read_string("a tensor's name");
  const std::string subject = "tensor '" + name->substr(0, 100) + "'";
  if (name->empty() || name->size() > kTensorNameBytesMax) {
    in.fail(subject + ": name of " + std::to_string(name->size()) + " bytes, want 1 to " +
            std::to_string(kTensorNameBytesMax));
  }
  const auto num_dims = in.read<uint32_t>("a tensor's dimensions");
  if (num_dims > kDimsMax) {
    in.fail(subject + ": " + std::to_string(num_dims) + " dimensions, want at most 4");
  }
  int64_t elems = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    const auto extent = in.read<int64_t>("a tensor's shape");
    if (extent <= 0) {
      in.fail(subject + ": dimension " + std::to_string(i) + " is " + std::to_string(extent) +
              ", want at least 1");
    }
    if (__builtin_mul_overflow(elems, extent, &elems) || elems > (int64_t{1} << 56)) {
      in.fail(subject + ": too many elements");
    }
    tensor->shape.insert(tensor->shape.begin(), extent);
  }
  const auto type = in.read<uint32_t>("a tensor's type");
  for (const FormatType& format : kTensorTypes) {
    if (format.id == type) tensor->dtype = format.dtype;
  }
  if (!tensor->dtype) {
    in.fail(subject + ": tensor type " + std::to_string(type) +
            " is not supported, want one of F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
  }
  const DtypeInfo& info = dtype_info(*tensor->dtype);
  tensor->dtype_name = info.name;
  const int64_t row_elems = num_dims == 0 ? 1 : tensor->shape.back();
  if (row_elems % info.block_elems != 0) {
    in.fail(subject + ": rows of " + std::to_string(row_elems) + " elements, want a multiple of " +
            std::to_string(info.block_elems) + " for " + info.name);
  }
  tensor->bytes = dtype_bytes(*tensor->dtype, elems);
  return in.read<uint64_t>("a tensor's offset");
}

struct TensorInfo {
  std::string name;
  StoredTensor tensor;
  uint64_t offset = 0;
};

std::vector<TensorInfo> read_tensor_infos(GgufCursor& in, uint64_t count, uint64_t alignment) {
  std::vector<TensorInfo> infos(count);
  uint64_t want_offset = 0;
  for (TensorInfo& info : infos) {
    info.offset = read_tensor_info(in, &info.name, &info.tensor);
    if (info.offset != want_offset) {
      in.fail("tensor '" + info.name + "': offset " + std::to_string(info.offset) + ", want " +
              std::to_string(want_offset));
    }
    const auto bytes = static_cast<uint64_t>(info.tensor.bytes);
    const uint64_t padded = (bytes + alignment - 1) / alignment * alignment;
    if (__builtin_add_overflow(want_offset, padded, &want_offset) ||
        want_offset > (uint64_t{1} << 62)) {
      in.fail("tensor '" + info.name + "': the sizes of all tensors overflow");
    }
  }
  return infos;
}

uint64_t read_alignment(const GgufCursor& in, const GgufMetadata& metadata) {
  const int64_t alignment = metadata.integer("general.alignment", 32);
  if (alignment < 1 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0) {
    in.fail("general.alignment is " + std::to_string(alignment) +
            ", want a power of two up to 1048576");
  }
  return static_cast<uint64_t>(alignment);
}

void place_tensors(const GgufCursor& in, const MappedFile& file, uint64_t alignment,
                   std::vector<TensorInfo> infos, TensorStore* store) {
  const uint64_t data_begin =
      (static_cast<uint64_t>(in.at()) + alignment - 1) / alignment * alignment;
  const auto file_bytes = static_cast<uint64_t>(file.size());
  for (TensorInfo& info : infos) {
    const uint64_t end = data_begin + info.offset + static_cast<uint64_t>(info.tensor.bytes);
    if (end > file_bytes) {
      in.fail("tensor '" + info.name + "' ends at byte " + std::to_string(end) +
              ", but the file has only " + std::to_string(file_bytes) + ": it is cut short");
    }
    info.tensor.data = file.data() + data_begin + info.offset;
    info.tensor.file = &file;
    if (!store->tensors.emplace(info.name, std::move(info.tensor)).second) {
      in.fail("tensor '" + info.name + "' appears twice");
    }
  }
}

}  // namespace

GgufFile open_gguf(const std::string& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  GgufCursor in(*file);
  if (in.left() < 4 || std::memcmp(file->data(), "GGUF", 4) != 0) in.fail("not a GGUF file");
  in.read<uint32_t>("the magic");
  const auto version = in.read<uint32_t>("the version");
  if (version != 2 && version != 3) {
    in.fail("GGUF version " + std::to_string(version) + ", want 2 or 3" +
            ((version & 0xFFFF) == 0 && version != 0 ? " (a big-endian file?)" : ""));
  }
  constexpr uint64_t kTensorInfoBytesMin = 8 + 1 + 4 + 4 + 8;
  constexpr uint64_t kValueBytesMin = 8 + 1 + 4 + 1;
  const uint64_t num_tensors = in.read_count("the number of tensors", kTensorInfoBytesMin);
  const uint64_t num_values = in.read_count("the number of metadata values", kValueBytesMin);

  GgufFile result{.metadata = GgufMetadata(path, read_values(in, num_values)),
                  .tensors = TensorStore{.path = path}};
  const uint64_t alignment = read_alignment(in, result.metadata);
  std::vector<TensorInfo> infos = read_tensor_infos(in, num_tensors, alignment);
  place_tensors(in, *file, alignment, std::move(infos), &result.tensors);
  result.tensors.files.push_back(file);
  return result;
}

}  // namespace baton
