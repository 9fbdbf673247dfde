#include "model/tiny_gguf.h"

#include <cstring>
#include <random>

#include "model/gguf_writer.h"
#include "model/golden_model.h"
#include "model/safetensors.h"

namespace baton {
namespace {

// Random blocks whose scales make weights of about 0.05.
std::string random_blocks(Dtype dtype, int64_t elems, std::mt19937& random) {
  const DtypeInfo& info = dtype_info(dtype);
  std::string bytes(static_cast<size_t>(dtype_bytes(dtype, elems)), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  const auto put_half = [&](size_t at, uint16_t half) { std::memcpy(bytes.data() + at, &half, 2); };
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
    switch (dtype) {
      case Dtype::kQ4_0:
      case Dtype::kQ5_0:
        put_half(at, 0x1C00);
        break;  // 2^-8
      case Dtype::kQ4_1:
      case Dtype::kQ5_1:
        put_half(at, 0x1C00);
        put_half(at + 2, 0xA800);
        break;
      case Dtype::kQ8_0:
        put_half(at, 0x1000);
        break;  // 2^-11
      case Dtype::kQ4_K:
      case Dtype::kQ5_K:
        put_half(at, 0x0680);
        put_half(at + 2, 0x1225);
        break;
      case Dtype::kQ6_K:
        put_half(at + 208, 0x0100);
        break;
      default:
        break;
    }
  }
  return bytes;
}

std::string random_floats(int64_t elems, float mean, float spread, std::mt19937& random) {
  std::normal_distribution<float> normal(mean, spread);
  std::string bytes;
  for (int64_t i = 0; i < elems; ++i) {
    const float value = normal(random);
    bytes.append(reinterpret_cast<const char*>(&value), 4);
  }
  return bytes;
}

// Within each head, GGUF's converters put row i and row i + d/2 next to each other.
std::string permute_rows(const std::string& bytes, int64_t heads, int64_t rows) {
  const auto row_bytes = static_cast<int64_t>(bytes.size()) / rows;
  const int64_t head_rows = rows / heads;
  std::string result;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < head_rows; ++i) {
      const int64_t from = head * head_rows + i / 2 + (i % 2) * head_rows / 2;
      result += bytes.substr(static_cast<size_t>(from * row_bytes), static_cast<size_t>(row_bytes));
    }
  }
  return result;
}

std::string gguf_name(std::string name) {
  const std::pair<const char*, const char*> changes[] = {{"model.layers.", "blk."},
                                                         {"self_attn.q_proj", "attn_q"},
                                                         {"self_attn.k_proj", "attn_k"},
                                                         {"self_attn.v_proj", "attn_v"},
                                                         {"self_attn.o_proj", "attn_output"},
                                                         {"mlp.", "ffn_"},
                                                         {"_proj", ""},
                                                         {"input_layernorm", "attn_norm"},
                                                         {"post_attention_layernorm", "ffn_norm"},
                                                         {"model.embed_tokens", "token_embd"},
                                                         {"model.norm", "output_norm"},
                                                         {"lm_head", "output"}};
  for (const auto& [from, to] : changes) {
    if (const size_t at = name.find(from); at != std::string::npos)
      name.replace(at, std::strlen(from), to);
  }
  return name;
}

}  // namespace

std::string write_tiny_gguf(const std::string& name, const TinyGgufModel& model) {
  const std::string prefix = model.architecture + ".";
  GgufWriter out;
  out.header(3, static_cast<int64_t>(model.tensors.size()), 8);
  out.value_string("general.architecture", model.architecture);
  out.value_u32(prefix + "block_count", model.layers);
  out.value_u32(prefix + "embedding_length", model.hidden);
  out.value_u32(prefix + "feed_forward_length", model.inner);
  out.value_u32(prefix + "attention.head_count", model.heads);
  out.value_u32(prefix + "attention.head_count_kv", model.kv_heads);
  out.value_u32(prefix + "context_length", model.context);
  out.value_f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
  uint64_t offset = 0;
  for (const auto& [tensor, matrix] : model.tensors) {
    out.tensor_info(tensor, matrix.dims, gguf_type_id(matrix.dtype), offset);
    offset += (matrix.bytes.size() + 31) / 32 * 32;
  }
  out.pad();
  for (const auto& [tensor, matrix] : model.tensors) {
    out.put_bytes(matrix.bytes);
    out.pad();
  }
  return write_test_file(name, out.bytes());
}

TinyGgufModel random_tiny_gguf(const std::function<Dtype(const std::string&)>& dtype_of,
                               uint32_t seed) {
  std::mt19937 random(seed);
  TinyGgufModel model{.layers = 2, .hidden = 256, .inner = 512, .heads = 4, .kv_heads = 2};
  const auto add = [&](const std::string& prefix, const std::string& name, int64_t cols,
                       int64_t rows) {
    const Dtype dtype = dtype_of(name);
    model.tensors[prefix + name + ".weight"] = {
        .dims = {cols, rows},
        .dtype = dtype,
        .bytes = dtype == Dtype::kF32 ? random_floats(cols * rows, 0, 0.05F, random)
                                      : random_blocks(dtype, cols * rows, random)};
  };
  const auto add_norm = [&](const std::string& name) {
    model.tensors[name] = {.dims = {256}, .bytes = random_floats(256, 1, 0.1F, random)};
  };
  model.tensors["token_embd.weight"] = {.dims = {256, 100},
                                        .bytes = random_floats(25600, 0, 1, random)};
  add_norm("output_norm.weight");
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    add_norm(prefix + "attn_norm.weight");
    add_norm(prefix + "ffn_norm.weight");
    add(prefix, "attn_q", 256, 256);
    add(prefix, "attn_k", 256, 128);
    add(prefix, "attn_v", 256, 128);
    add(prefix, "attn_output", 256, 256);
    add(prefix, "ffn_gate", 256, 512);
    add(prefix, "ffn_up", 256, 512);
    add(prefix, "ffn_down", 512, 256);
  }
  return model;
}

TinyGgufModel dequantised(TinyGgufModel model) {
  for (auto& [name, matrix] : model.tensors) {
    if (matrix.dtype == Dtype::kF32) continue;
    int64_t elems = 1;
    for (const int64_t extent : matrix.dims) elems *= extent;
    std::string floats(static_cast<size_t>(elems) * 4, '\0');
    dequantize(matrix.dtype, matrix.bytes.data(), reinterpret_cast<float*>(floats.data()), elems);
    matrix.bytes = std::move(floats);
    matrix.dtype = Dtype::kF32;
  }
  return model;
}

TinyGgufModel golden_as_gguf() {
  TinyGgufModel model{.layers = 3, .hidden = 64, .inner = 128, .heads = 4, .kv_heads = 2};
  const TensorStore store = open_safetensors(golden_path("llama"));
  for (const auto& [name, tensor] : store.tensors) {
    GgufMatrix matrix{.dims = {tensor.shape.rbegin(), tensor.shape.rend()}, .dtype = *tensor.dtype};
    matrix.bytes.assign(reinterpret_cast<const char*>(tensor.data),
                        static_cast<size_t>(tensor.bytes));
    if (name.find("q_proj") != std::string::npos) matrix.bytes = permute_rows(matrix.bytes, 4, 64);
    if (name.find("k_proj") != std::string::npos) matrix.bytes = permute_rows(matrix.bytes, 2, 32);
    model.tensors[gguf_name(name)] = std::move(matrix);
  }
  return model;
}

}  // namespace baton
