#include "model/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "model/safetensors.h"

namespace baton {
namespace {

template <typename T>
std::vector<T> read_values(const TensorStore& store, const std::string& name) {
  const StoredTensor* tensor = store.find(name);
  CHECK(tensor != nullptr) << store.path << " has no " << name;
  std::vector<T> values(static_cast<size_t>(tensor->bytes) / sizeof(T));
  std::memcpy(values.data(), tensor->data, values.size() * sizeof(T));
  return values;
}

}  // namespace

// A program built here may run in a copy of the tree somewhere else.
std::string golden_path(const std::string& family) {
  const std::string here = "tests/golden/" + family;
  return std::filesystem::exists(here) ? here : std::string(BATON_SOURCE_DIR) + "/" + here;
}

GoldenReference read_golden_reference(const std::string& family) {
  const TensorStore store = open_safetensors(golden_path(family) + "/reference.safetensors");
  return {.input_ids = read_values<int32_t>(store, "input_ids"),
          .logits = read_values<float>(store, "logits"),
          .greedy = read_values<int32_t>(store, "greedy"),
          .greedy_margin = read_values<float>(store, "greedy_margin")};
}

EngineOptions golden_options(int32_t page_tokens) {
  return {.threads = 2,
          .page_tokens = page_tokens,
          .kv_bytes = 8 << 20,
          .slab_bytes = 1 << 20,
          .step_tokens_max = 256,
          .context_len_max = 1024};
}

LoadedModel load_golden(const std::string& family, const EngineOptions& options, LayerSink* sink) {
  LoadedModel model = load_model(golden_path(family), options, sink);
  for (const auto& pool : model.pools) {
    std::memset(pool->base(), 0xFF, static_cast<size_t>(pool->num_pages() * pool->page_bytes()));
  }
  return model;
}

std::vector<std::vector<int32_t>> scattered_tables(const LoadedModel& model, int32_t num_tokens,
                                                   int32_t first_pos, int32_t lane, int32_t lanes) {
  std::vector<std::vector<int32_t>> tables;
  for (size_t g = 0; g < model.layout.groups.size(); ++g) {
    const KvGroup& group = model.layout.groups[g];
    const int32_t lane_pages = model.pools[g]->num_pages() / lanes;
    std::vector<int32_t>& table = tables.emplace_back();
    for (int32_t i = 0; i < group.pages_for(num_tokens); ++i) {
      CHECK_LT(i, lane_pages) << "the pool is too small";
      // From the end of the lane downwards, lanes interleaved: neither ascending nor contiguous.
      const bool gone =
          group.window > 0 && (i + 1) * group.page_tokens <= first_pos - group.window + 1;
      table.push_back(gone ? -1 : (lane_pages - 1 - i) * lanes + lane);
    }
  }
  return tables;
}

Chunk make_chunk(const LoadedModel& model, const std::vector<TokenId>& ids, int32_t begin,
                 int32_t end, int32_t lane, int32_t lanes) {
  return {.seq = static_cast<uint64_t>(lane),
          .first_pos = begin,
          .tokens = {ids.begin() + begin, ids.begin() + end},
          .block_tables = scattered_tables(model, end, begin, lane, lanes),
          .all_logits = true};
}

std::vector<float> execute(LoadedModel& model, std::vector<Chunk> chunks) {
  StepOutput output = model.engine->execute({.chunks = std::move(chunks)});
  CHECK(output.error.empty()) << output.error;
  return std::move(output.logits);
}

std::vector<float> prefill(LoadedModel& model, const std::vector<TokenId>& ids,
                           int32_t chunk_tokens, int32_t lane, int32_t lanes) {
  std::vector<float> logits;
  const auto end = static_cast<int32_t>(ids.size());
  for (int32_t at = 0; at < end; at += chunk_tokens) {
    const std::vector<float> part =
        execute(model, {make_chunk(model, ids, at, std::min(end, at + chunk_tokens), lane, lanes)});
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

SlotOpen open_slot(int32_t slot, const GoldenReference& reference, SamplingSpec spec) {
  spec.max_tokens = 900;
  return {.slot = slot,
          .spec = std::move(spec),
          .prompt_len = static_cast<int32_t>(reference.input_ids.size()),
          .tokens = reference.input_ids};
}

std::vector<float> rows(const std::vector<float>& logits, int32_t vocab, int32_t begin,
                        int32_t end) {
  return {logits.begin() + begin * vocab, logits.begin() + end * vocab};
}

double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK_EQ(a.size(), b.size()) << "different sizes";
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace baton
