#include "model/kv_plan.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace baton {

KvLayout plan_kv_layout(const ModelConfig& config, int32_t page_tokens, Dtype dtype) {
  if (page_tokens < 1 || page_tokens > 4096 || (page_tokens & (page_tokens - 1)) != 0) {
    throw ConfigError("page tokens: got " + std::to_string(page_tokens) +
                      ", want a power of two up to 4096");
  }
  KvLayout layout;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const int32_t window = config.layer_windows[static_cast<size_t>(layer)];
    auto group = std::find_if(layout.groups.begin(), layout.groups.end(),
                              [window](const KvGroup& g) { return g.window == window; });
    if (group == layout.groups.end()) {
      layout.groups.push_back(KvGroup{.num_kv_heads = config.num_kv_heads,
                                      .head_dim = config.head_dim,
                                      .page_tokens = page_tokens,
                                      .window = window,
                                      .dtype = dtype});
      group = std::prev(layout.groups.end());
    }
    group->layers.push_back(layer);
  }
  std::stable_sort(
      layout.groups.begin(), layout.groups.end(),
      [](const KvGroup& a, const KvGroup& b) { return a.window == 0 && b.window != 0; });
  return layout;
}

int64_t kv_bytes_for(const KvLayout& layout, int64_t tokens) {
  int64_t bytes = 0;
  for (const KvGroup& group : layout.groups) {
    bytes += (tokens + group.page_tokens - 1) / group.page_tokens * group.page_bytes();
  }
  return bytes;
}

std::vector<int32_t> plan_pages(const KvLayout& layout, int64_t kv_bytes) {
  int64_t bytes_per_page_of_all = 0;  // all groups have the same page_tokens
  for (const KvGroup& group : layout.groups) bytes_per_page_of_all += group.page_bytes();
  const int64_t pages = kv_bytes / bytes_per_page_of_all;
  if (pages < 1) {
    throw ConfigError("KV memory: got " + std::to_string(kv_bytes) + " bytes, want at least " +
                      std::to_string(bytes_per_page_of_all) + " for one page");
  }
  // Slot numbers (page * page_tokens + offset) are int32.
  const int64_t pages_max = std::numeric_limits<int32_t>::max() / layout.groups[0].page_tokens;
  return std::vector<int32_t>(layout.groups.size(),
                              static_cast<int32_t>(std::min(pages, pages_max)));
}

Dtype parse_kv_dtype(const std::string& name, bool quantised_weights) {
  if (name == "auto") return quantised_weights ? Dtype::kF16 : Dtype::kF32;
  if (name == "f32") return Dtype::kF32;
  if (name == "f16") return Dtype::kF16;
  if (name == "bf16") return Dtype::kBF16;
  throw ConfigError("KV dtype: got '" + name + "', want auto, f32, f16 or bf16");
}

}  // namespace baton
