#include "model/compat_id.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>

#include "base/check.h"

namespace baton {
namespace {

constexpr int kKernelNumericsVersion = 1;
constexpr int64_t kSamples = 8;
constexpr int64_t kSampleBytes = 64;

class Sha256 {
 public:
  Sha256() { CHECK_EQ(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), 1) << "SHA-256"; }
  void add(const void* data, size_t bytes) {
    CHECK_EQ(EVP_DigestUpdate(context_.get(), data, bytes), 1) << "SHA-256";
  }
  void add(const std::string& text) { add(text.data(), text.size()); }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int bytes = 0;
    CHECK_EQ(EVP_DigestFinal_ex(context_.get(), digest.data(), &bytes), 1) << "SHA-256";
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < bytes; ++i) {
      text += kDigits[digest[i] >> 4];
      text += kDigits[digest[i] & 15];
    }
    return text;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
};

// Every value that changes what lies in a page, in one line each. Floats in hex: no rounding.
std::string describe(const ModelConfig& config) {
  std::ostringstream out;
  const RopeConfig& rope = config.rope;
  out << std::hexfloat << config.architecture << ' ' << config.vocab_size << ' '
      << config.hidden_size << ' ' << config.intermediate_size << ' ' << config.num_layers << ' '
      << config.num_heads << ' ' << config.num_kv_heads << ' ' << config.head_dim << ' '
      << config.rms_eps << ' ' << config.qkv_bias << config.output_bias << config.mlp_bias
      << config.qk_norm << config.tied_embeddings << '\n'
      << rope.theta << ' ' << rope.rotary_dim << ' ' << rope.interleaved << ' '
      << static_cast<int>(rope.scaling) << ' ' << rope.factor << ' ' << rope.original_context_len
      << ' ' << rope.low_freq_factor << ' ' << rope.high_freq_factor << ' ' << rope.attention_factor
      << ' ' << rope.beta_fast << ' ' << rope.beta_slow << ' ' << rope.truncate << '\n';
  return out.str();
}

std::string describe(const KvLayout& layout) {
  std::ostringstream out;
  for (const KvGroup& group : layout.groups) {
    out << "group " << group.num_kv_heads << ' ' << group.head_dim << ' ' << group.page_tokens
        << ' ' << group.window << ' ' << dtype_info(group.dtype).name << ':';
    for (const int32_t layer : group.layers) out << ' ' << layer;
    out << '\n';
  }
  return out.str();
}

void add_samples(Sha256& digest, const StoredTensor& tensor) {
  if (tensor.data == nullptr) return;  // made up: the same for everybody
  if (tensor.bytes <= kSamples * kSampleBytes) {
    digest.add(tensor.data, static_cast<size_t>(tensor.bytes));
    return;
  }
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t at = (tensor.bytes - kSampleBytes) / (kSamples - 1) * i;
    digest.add(tensor.data + at, kSampleBytes);
  }
}

}  // namespace

std::string kv_compat_id(const ModelConfig& config, const TensorStore& store,
                         const KvLayout& layout) {
  Sha256 digest;
  digest.add("kv " + std::to_string(kKvFormatVersion) + "\n" + describe(config) + describe(layout));
  for (const auto& [name, tensor] : store.tensors) {
    digest.add(name + " " + tensor.dtype_name + " " + shape_string(tensor.shape) + "\n");
    add_samples(digest, tensor);
  }
  return digest.hex();
}

std::string numerics_id(const std::string& device, const char* isa, const KvLayout& layout) {
  return device + "/" + isa + "/" + std::to_string(kKernelNumericsVersion) + "/" +
         dtype_info(layout.groups[0].dtype).name;
}

}  // namespace baton
