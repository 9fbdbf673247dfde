#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "base/status.h"
#include "model/json_file.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit

struct FormatDtype {
  const char* name;
  int64_t bits;
  std::optional<Dtype> dtype;
};
constexpr FormatDtype kFormatDtypes[] = {
    {"F32", 32, Dtype::kF32},
    {"F16", 16, Dtype::kF16},
    {"BF16", 16, Dtype::kBF16},
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
};

// A checked entry of the header; offsets are relative to the buffer.
struct Entry {
  std::string name;
  StoredTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

uint64_t read_unsigned(const Json& value, const std::string& subject) {
  if (!value.is_number_unsigned()) {
    throw ConfigError(subject + ": got " + value.dump().substr(0, 40) +
                      ", want a non-negative integer");
  }
  return value.get<uint64_t>();
}

Entry read_entry(const std::string& file, const std::string& name, const Json& value) {
  const std::string subject = file + ": tensor '" + name.substr(0, 200) + "'";
  if (name.find('\0') != std::string::npos) throw ConfigError(file + ": NUL in a tensor's name");
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
      !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
      !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
    throw ConfigError(subject + ": want {dtype, shape, data_offsets: [begin, end]}");
  }
  Entry entry{.name = name};
  entry.tensor.dtype_name = value["dtype"].get<std::string>();
  const auto* format = std::find_if(
      std::begin(kFormatDtypes), std::end(kFormatDtypes),
      [&](const FormatDtype& candidate) { return candidate.name == entry.tensor.dtype_name; });
  if (format == std::end(kFormatDtypes)) {
    throw ConfigError(subject + ": unknown dtype '" + entry.tensor.dtype_name.substr(0, 40) + "'");
  }
  entry.tensor.dtype = format->dtype;

  uint64_t elems = 1;
  for (const Json& dim : value["shape"]) {
    const uint64_t extent = read_unsigned(dim, subject + ": shape");
    if (__builtin_mul_overflow(elems, extent, &elems) || elems > (uint64_t{1} << 56)) {
      throw ConfigError(subject + ": shape " + value["shape"].dump().substr(0, 100) + " overflows");
    }
    entry.tensor.shape.push_back(static_cast<int64_t>(extent));
  }
  entry.begin = read_unsigned(value["data_offsets"][0], subject + ": data_offsets");
  entry.end = read_unsigned(value["data_offsets"][1], subject + ": data_offsets");
  const uint64_t want_bytes = elems * static_cast<uint64_t>(format->bits) / 8;
  if (entry.begin > entry.end || entry.end - entry.begin != want_bytes) {
    throw ConfigError(subject + ": data_offsets [" + std::to_string(entry.begin) + ", " +
                      std::to_string(entry.end) + "] for " + std::to_string(want_bytes) +
                      " bytes of " + format->name + " " + shape_string(entry.tensor.shape));
  }
  entry.tensor.bytes = static_cast<int64_t>(want_bytes);
  return entry;
}

Json read_header(const MappedFile& file, uint64_t* header_bytes) {
  const std::string& path = file.path();
  if (file.size() < 8) {
    throw ConfigError(path + ": got " + std::to_string(file.size()) +
                      " bytes, want at least the 8 of a safetensors header length");
  }
  std::memcpy(header_bytes, file.data(), 8);  // little-endian, as is every machine that we run on
  if (*header_bytes > kHeaderBytesMax) {
    throw ConfigError(path + ": header of " + std::to_string(*header_bytes) +
                      " bytes, want at most " + std::to_string(kHeaderBytesMax));
  }
  if (*header_bytes > static_cast<uint64_t>(file.size()) - 8) {
    throw ConfigError(path + ": header of " + std::to_string(*header_bytes) +
                      " bytes, but the file has only " + std::to_string(file.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, *header_bytes);
  if (text.empty() || text[0] != '{') {
    throw ConfigError(path + ": the safetensors header does not start with '{'");
  }
  return parse_json(text, path);
}

void check_metadata(const std::string& path, const Json& metadata) {
  if (!metadata.is_object()) throw ConfigError(path + ": __metadata__ is not an object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) throw ConfigError(path + ": __metadata__." + key + " is not a string");
  }
}

// Adds one file's tensors; the store takes the mapping.
void add_file(TensorStore& store, const std::string& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  uint64_t header_bytes = 0;
  const Json header = read_header(*file, &header_bytes);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(path, value);
    } else {
      entries.push_back(read_entry(path, name, value));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });

  const std::byte* buffer = file->data() + 8 + header_bytes;
  const uint64_t buffer_bytes = static_cast<uint64_t>(file->size()) - 8 - header_bytes;
  uint64_t at = 0;
  for (Entry& entry : entries) {
    if (entry.begin != at) {
      throw ConfigError(path + ": tensor '" + entry.name + "' begins at " +
                        std::to_string(entry.begin) + ", want " + std::to_string(at) +
                        " (a gap or an overlap)");
    }
    if (entry.end > buffer_bytes) {
      throw ConfigError(path + ": tensor '" + entry.name + "' ends at " +
                        std::to_string(entry.end) + ", but only " + std::to_string(buffer_bytes) +
                        " bytes follow the header: the file is cut short");
    }
    at = entry.end;
    entry.tensor.data = buffer + entry.begin;
    entry.tensor.file = file.get();
    if (!store.tensors.emplace(entry.name, std::move(entry.tensor)).second) {
      throw ConfigError(path + ": tensor '" + entry.name + "' is also in another shard");
    }
  }
  if (at != buffer_bytes) {
    throw ConfigError(path + ": " + std::to_string(buffer_bytes - at) +
                      " bytes after the last tensor");
  }
  store.files.push_back(file);
}

void add_shards(TensorStore& store, const std::string& folder, const std::string& index_path) {
  const Json index = parse_json_file(index_path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw ConfigError(index_path + ": no weight_map object");
  }
  std::map<std::string, std::string> file_of;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string())
      throw ConfigError(index_path + ": file of '" + tensor + "' is no string");
    const std::string name = shard.get<std::string>();
    if (name.empty() || name[0] == '.' ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      throw ConfigError(index_path + ": shard '" + name + "' of '" + tensor +
                        "', want a file name in the same folder");
    }
    file_of[tensor] = name;
    shards.insert(name);
  }
  for (const std::string& shard : shards) add_file(store, folder + "/" + shard);
  for (const auto& [tensor, shard] : file_of) {
    if (store.find(tensor) == nullptr) {
      throw ConfigError(index_path + ": tensor '" + tensor + "' is not in its shard " + shard);
    }
  }
}

}  // namespace

TensorStore open_safetensors(const std::string& path) {
  TensorStore store{.path = path};
  if (file_exists(path)) {
    add_file(store, path);
  } else if (file_exists(path + "/model.safetensors.index.json")) {
    add_shards(store, path, path + "/model.safetensors.index.json");
  } else {
    add_file(store, path + "/model.safetensors");
  }
  return store;
}

void write_safetensors(const std::string& path, const std::map<std::string, FloatTensor>& tensors) {
  Json header = Json::object();
  uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t end = at + tensor.data.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [name, tensor] : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.data.data()),
               static_cast<std::streamsize>(tensor.data.size() * sizeof(float)));
  }
  file.flush();
  if (!file) throw ConfigError(path + ": cannot write");
}

}  // namespace baton
