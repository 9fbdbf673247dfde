#include "bench/dummy_model_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "base/scoped_fd.h"
#include "base/status.h"
#include "model/gguf_writer.h"
#include "model/json_file.h"
#include "model/model_source.h"

namespace baton {
namespace {

// Random, but finite in every format, whatever 16-bit word a scale is: of the size of 2^-9 in bf16
// and of 1 in float16.
std::vector<uint16_t> random_words() {
  std::mt19937 random(1);
  std::vector<uint16_t> words(16 << 20);
  for (uint16_t& word : words) word = static_cast<uint16_t>((random() & 0x81ff) | 0x3a00);
  return words;
}

class FileWriter {
 public:
  explicit FileWriter(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!fd_.valid()) fail("open");
  }
  void write(const void* data, int64_t bytes) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(fd_.get(), from, static_cast<size_t>(bytes));
      if (written < 0) fail("write");
      from += written;
      bytes -= written;
    }
  }
  void write_weights(int64_t bytes) {
    for (int64_t piece = 0; bytes > 0; bytes -= piece) {
      piece = std::min(bytes, static_cast<int64_t>(words_.size() * 2));
      write(words_.data(), piece);
    }
  }
  void finish() {
    if (::fsync(fd_.get()) != 0) fail("fsync");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw ConfigError(path_ + ": cannot " + what + ": " + std::strerror(errno));
  }
  const std::string path_;
  const ScopedFd fd_;
  const std::vector<uint16_t> words_ = random_words();
};

struct FileTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

int64_t bytes_of(const std::vector<FileTensor>& tensors) {
  int64_t bytes = 0;
  for (const FileTensor& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

// In the order of a forward pass, as converters write them; layer -1: what is outside the layers.
std::vector<FileTensor> tensors_of_layer(const ModelConfig& config, Dtype dtype, int32_t layer) {
  const bool gguf = dtype != Dtype::kBF16;
  const std::string prefix =
      layer < 0 ? "" : (gguf ? "blk." : "model.layers.") + std::to_string(layer) + ".";
  std::vector<FileTensor> tensors;
  const auto add = [&](const char* name, const char* gguf_name, std::vector<int64_t> shape) {
    const bool norm = shape.size() == 1;
    const Dtype type = gguf && norm ? Dtype::kF32 : dtype;
    const int64_t elems = norm ? shape[0] : shape[0] * shape[1];
    tensors.push_back({.name = prefix + (gguf ? gguf_name : name) + ".weight",
                       .dtype = type,
                       .shape = std::move(shape),
                       .bytes = dtype_bytes(type, elems)});
  };
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  if (layer < 0) {
    add("model.embed_tokens", "token_embd", {config.vocab_size, hidden});
    add("model.norm", "output_norm", {hidden});
    if (!config.tied_embeddings) add("lm_head", "output", {config.vocab_size, hidden});
    return tensors;
  }
  add("input_layernorm", "attn_norm", {hidden});
  add("self_attn.q_proj", "attn_q", {q, hidden});
  add("self_attn.k_proj", "attn_k", {kv, hidden});
  add("self_attn.v_proj", "attn_v", {kv, hidden});
  add("self_attn.o_proj", "attn_output", {hidden, q});
  add("post_attention_layernorm", "ffn_norm", {hidden});
  add("mlp.gate_proj", "ffn_gate", {inner, hidden});
  add("mlp.up_proj", "ffn_up", {inner, hidden});
  add("mlp.down_proj", "ffn_down", {hidden, inner});
  return tensors;
}

void write_safetensors_folder(const std::string& shape, int32_t layers,
                              const std::vector<FileTensor>& tensors, const std::string& path) {
  std::filesystem::create_directories(path);
  nlohmann::json config = parse_json_file(shape + "/config.json");
  config["num_hidden_layers"] = layers;
  std::ofstream(path + "/config.json") << config.dump(2) << '\n';
  nlohmann::json header = nlohmann::json::object();
  int64_t at = 0;
  for (const FileTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", dtype_info(tensor.dtype).name},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + tensor.bytes}}};
    at += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();
  FileWriter file(path + "/model.safetensors");
  file.write(&header_bytes, sizeof(header_bytes));
  file.write(text.data(), static_cast<int64_t>(text.size()));
  file.write_weights(at);
  file.finish();
}

void write_gguf(const ModelConfig& config, int32_t layers, const std::vector<FileTensor>& tensors,
                const std::string& path) {
  GgufWriter head;
  const auto value = [&](const char* key, int64_t number) {
    head.value_u32(std::string("llama.") + key, static_cast<uint32_t>(number));
  };
  head.header(3, static_cast<int64_t>(tensors.size()), 9);
  head.value_string("general.architecture", "llama");
  value("block_count", layers);
  value("embedding_length", config.hidden_size);
  value("feed_forward_length", config.intermediate_size);
  value("attention.head_count", config.num_heads);
  value("attention.head_count_kv", config.num_kv_heads);
  value("attention.key_length", config.head_dim);
  value("context_length", config.context_len);
  head.value_f32("llama.attention.layer_norm_rms_epsilon", config.rms_eps);
  uint64_t at = 0;
  for (const FileTensor& tensor : tensors) {
    head.tensor_info(tensor.name, {tensor.shape.rbegin(), tensor.shape.rend()},
                     gguf_type_id(tensor.dtype), at);
    at += static_cast<uint64_t>(tensor.bytes);
    if (at % 32 != 0) throw ConfigError(tensor.name + ": its size is no multiple of 32 bytes");
  }
  head.pad();
  FileWriter file(path);
  file.write(head.bytes().data(), static_cast<int64_t>(head.bytes().size()));
  file.write_weights(static_cast<int64_t>(at));
  file.finish();
}

}  // namespace

void write_dummy_model(const std::string& shape, Dtype dtype, int64_t bytes_max,
                       const std::string& path) {
  const ModelConfig config = read_hf_config(shape);
  std::vector<FileTensor> tensors = tensors_of_layer(config, dtype, -1);
  const int64_t layer_bytes = bytes_of(tensors_of_layer(config, dtype, 0));
  const auto layers = static_cast<int32_t>(
      std::clamp<int64_t>((bytes_max - bytes_of(tensors)) / layer_bytes, 1, config.num_layers));
  for (int32_t layer = 0; layer < layers; ++layer) {
    for (FileTensor& tensor : tensors_of_layer(config, dtype, layer))
      tensors.push_back(std::move(tensor));
  }
  if (dtype == Dtype::kBF16) {
    write_safetensors_folder(shape, layers, tensors, path);
  } else {
    write_gguf(config, layers, tensors, path);
  }
}

}  // namespace baton
