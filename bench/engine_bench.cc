// Whole engine steps on a GPU, sampling and host included, for a model of real shape with random
// weights: decode batches with one step in flight, and prefill. Prints medians beside the floor
// (bytes at the read rate of the memory, or FLOPs at the rate of the tensor cores) and the sum of
// the parts (step_parts.h), which are timed in turn with the steps.
//
//   engine_bench --model bench/shapes/llama-3.1-8b [--decode 1x1024,32x1024] [--prefill 1x512]
//                [--sampling penalties]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/step_parts.h"
#include "kernels/cuda/graph_timing.h"
#include "model/engine.h"
#include "model/model_config.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

// Measured on an H200 (docs/performance.md).
constexpr double kReadBytesPerSecond = 4.65e12;
constexpr double kFlopsPerSecond = 757e12;

struct Shape {
  int32_t sequences = 0;
  int32_t tokens = 0;  // context of a decode, length of a prompt
};

std::vector<Shape> parse_shapes(const std::string& text) {
  std::vector<Shape> shapes;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    Shape shape;
    char by = 0;
    if (!(std::istringstream(item) >> shape.sequences >> by >> shape.tokens) || by != 'x')
      throw CLI::ValidationError("want shapes like 32x1024, got " + item);
    shapes.push_back(shape);
  }
  return shapes;
}

struct Costs {
  double weight_bytes = 0;    // read by one step (without the embedding table)
  double kv_token_bytes = 0;  // of all layers
  double token_flops = 0;     // of the matrix products
  double pair_flops = 0;      // of attention, for a query and a key, all layers
};

Costs costs_of(const ModelConfig& config) {
  const double heads = double{1} * config.num_heads * config.head_dim;
  const double kv = double{1} * config.num_kv_heads * config.head_dim;
  const double layer = config.hidden_size * (2 * heads + 2 * kv) +
                       3.0 * config.hidden_size * config.intermediate_size;
  return {.weight_bytes =
              2 * (layer * config.num_layers + double{1} * config.hidden_size * config.vocab_size),
          .kv_token_bytes = 2 * 2 * kv * config.num_layers,
          .token_flops = 2 * layer * config.num_layers,
          .pair_flops = 4 * heads * config.num_layers};
}

// "linear + attention + rest"
std::string text_of(const PartsMs& parts) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3f + %.3f + %.3f", parts.linear, parts.attention,
                parts.rest);
  return text;
}

// What the decodes ask for: "greedy", or that and something more.
SamplingSpec spec_of(const std::string& sampling) {
  SamplingSpec spec{.max_tokens = 1 << 20, .temperature = 0};
  if (sampling == "penalties") {
    spec.repetition_penalty = 1.1F;
    spec.frequency_penalty = 0.2F;
  } else if (sampling == "mask") {
    for (TokenId id = 0; id < 1000; ++id) spec.allowed_token_ids.push_back(100 * id);
  } else if (sampling == "logprobs") {
    spec.logprobs = 20;
  } else if (sampling != "greedy") {
    throw CLI::ValidationError("sampling: want greedy, penalties, mask or logprobs, got " +
                               sampling);
  }
  return spec;
}

class Bench {
 public:
  Bench(const std::string& path, EngineOptions options, const SamplingSpec& spec)
      : costs_(costs_of(read_model_config(path))),
        spec_(spec),
        model_(load_model(path, options, nullptr)),
        parts_(read_model_config(path), model_, options.gemm_table) {
    model_.engine->on_step_done([this] {
      std::lock_guard lock(mutex_);
      ++done_;
      changed_.notify_one();
    });
  }
  ~Bench() { model_.engine->on_step_done({}); }

  void print_decode(const Shape& shape, int32_t steps);
  void print_prefill(const Shape& shape, int32_t repeats, std::chrono::milliseconds rest);

 private:
  Chunk chunk(int32_t sequence, int32_t first_pos, int32_t tokens);
  StepInput decode_step(const Shape& shape, int32_t step);
  void open_slots(const Shape& shape, StepInput* input);
  StepOutput collect();
  void wait_done();

  const Costs costs_;
  const SamplingSpec spec_;
  LoadedModel model_;
  StepParts parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t done_ = 0;
  uint64_t next_step_ = 1;
};

// Sequence i has the pages i, i + n, ...: scattered over the pool, and shared only if it is small.
Chunk Bench::chunk(int32_t sequence, int32_t first_pos, int32_t tokens) {
  Chunk result{.seq = static_cast<uint64_t>(sequence), .first_pos = first_pos};
  for (size_t g = 0; g < model_.layout.groups.size(); ++g) {
    const int32_t pages = model_.layout.groups[g].pages_for(first_pos + tokens);
    std::vector<int32_t>& table = result.block_tables.emplace_back();
    for (int32_t i = 0; i < pages; ++i) {
      const auto page = static_cast<int64_t>(i) * 257 + sequence * 8191;
      table.push_back(static_cast<int32_t>(page % model_.pools[g]->num_pages()));
    }
  }
  return result;
}

void Bench::open_slots(const Shape& shape, StepInput* input) {
  for (int32_t i = 0; i < shape.sequences; ++i) {
    input->opened_slots.push_back(
        {.slot = i,
         .spec = spec_,
         .prompt_len = 1,
         .tokens = std::vector<TokenId>(static_cast<size_t>(shape.tokens), 1000 + i)});
  }
}

StepInput Bench::decode_step(const Shape& shape, int32_t step) {
  StepInput input{.step = next_step_++};
  for (int32_t i = 0; i < shape.sequences; ++i) {
    Chunk& decode = input.chunks.emplace_back(chunk(i, shape.tokens - 1 + step, 1));
    decode.use_last = true;
    decode.sample_slots = {i};
  }
  return input;
}

void Bench::wait_done() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ > 0; });
  --done_;
}

StepOutput Bench::collect() {
  wait_done();
  StepOutput output = model_.engine->collect();
  if (!output.error.empty()) throw std::runtime_error(output.error);
  return output;
}

void Bench::print_decode(const Shape& shape, int32_t steps) {
  Engine& engine = *model_.engine;
  const PartsMs parts = parts_.time(shape.sequences, 1, shape.tokens - 1);
  StepInput first = decode_step(shape, 0);
  open_slots(shape, &first);
  engine.submit(std::move(first));
  std::vector<double> step_us, host_us, idle_us;
  auto last = Clock::now();
  for (int32_t i = 1; i <= steps; ++i) {
    StepInput next = decode_step(shape, i);
    const auto begin = Clock::now();
    engine.submit(std::move(next));
    const auto submitted = Clock::now();
    const StepOutput output = collect();
    const auto now = Clock::now();
    if (i > 3) {
      idle_us.push_back(std::chrono::duration<double, std::micro>(now - last).count() -
                        static_cast<double>(output.compute_us));
      step_us.push_back(std::chrono::duration<double, std::micro>(now - last).count());
      host_us.push_back(std::chrono::duration<double, std::micro>(submitted - begin).count());
    }
    last = now;
  }
  collect();
  StepInput close;
  for (int32_t i = 0; i < shape.sequences; ++i) close.closed_slots.push_back(i);
  engine.submit(std::move(close));
  collect();
  const double bytes = costs_.weight_bytes + costs_.kv_token_bytes * shape.sequences * shape.tokens;
  const double floor_ms = bytes / kReadBytesPerSecond * 1e3;
  const double ours_ms = median(step_us) / 1e3;
  std::printf(
      "decode  B=%-4d context %-6d floor %7.3f ms  parts %7.3f (%s)  ours %7.3f ms  x%.2f  idle "
      "%4.0f us  submit %4.0f us\n",
      shape.sequences, shape.tokens, floor_ms, parts.sum(), text_of(parts).c_str(), ours_ms,
      ours_ms / floor_ms, median(idle_us), median(host_us));
  std::fflush(stdout);
}

void Bench::print_prefill(const Shape& shape, int32_t repeats, std::chrono::milliseconds rest) {
  const PartsMs parts = parts_.time(shape.sequences, shape.tokens, 0);
  std::vector<double> step_us;
  for (int32_t r = 0; r < repeats; ++r) {
    StepInput input{.step = next_step_++};
    for (int32_t i = 0; i < shape.sequences; ++i) {
      SlotOpen open{.slot = i,
                    .spec = {.max_tokens = 16, .temperature = 0},
                    .prompt_len = shape.tokens,
                    .tokens = {}};
      for (int32_t t = 0; t < shape.tokens; ++t) open.tokens.push_back((t * 7919 + i) % 100000);
      Chunk& prompt = input.chunks.emplace_back(chunk(i, 0, shape.tokens));
      prompt.tokens = open.tokens;
      prompt.sample_slots = {i};
      input.opened_slots.push_back(std::move(open));
    }
    if (r > 0)
      for (int32_t i = 0; i < shape.sequences; ++i) input.closed_slots.push_back(i);
    std::this_thread::sleep_for(rest);
    const auto begin = Clock::now();
    model_.engine->submit(std::move(input));
    collect();
    const auto now = Clock::now();
    if (r > 0) step_us.push_back(std::chrono::duration<double, std::micro>(now - begin).count());
  }
  StepInput close;
  for (int32_t i = 0; i < shape.sequences; ++i) close.closed_slots.push_back(i);
  model_.engine->submit(std::move(close));
  collect();
  const double tokens = double{1} * shape.sequences * shape.tokens;
  const double flops =
      costs_.token_flops * tokens + costs_.pair_flops * tokens * (shape.tokens + 1) / 2;
  const double floor_ms = flops / kFlopsPerSecond * 1e3;
  const double ours_ms = median(step_us) / 1e3;
  std::printf(
      "prefill %d x %-6d floor %7.2f ms  parts %7.2f (%s)  ours %7.2f ms  x%.2f  %.0f tok/s  %.0f "
      "TFLOP/s\n",
      shape.sequences, shape.tokens, floor_ms, parts.sum(), text_of(parts).c_str(), ours_ms,
      ours_ms / floor_ms, tokens / ours_ms * 1e3, flops / ours_ms / 1e9);
  std::fflush(stdout);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  CLI::App app{"Times engine steps on a GPU"};
  std::string model = "bench/shapes/llama-3.1-8b";
  std::string decode = "1x1024,32x1024,128x1024,256x1024,8x32768";
  std::string prefill = "1x512,1x2048,1x8192,16x512";
  int32_t steps = 60;
  baton::EngineOptions options{.device = "cuda",
                               .page_tokens = 64,
                               .gpu_memory_utilization = 0.9,
                               .dummy_weights = true,
                               .slab_bytes = int64_t{1} << 30,
                               .step_tokens_max = 8192};
  options.cuda_graphs = "lazy";
  app.add_option("--model", model, "Folder with a config.json");
  app.add_option("--decode", decode, "Batch x context, ...");
  app.add_option("--prefill", prefill, "Prompts x tokens, ...");
  app.add_option("--steps", steps, "Decode steps timed");
  app.add_option("--cuda-graphs", options.cuda_graphs, "on, lazy or off");
  app.add_option("--gemm-table", options.gemm_table, "File of gemm_table_tool");
  int64_t kv_mib = 0;
  app.add_option("--kv-mib", kv_mib, "Memory of the pages; 0: what the GPU has left");
  app.add_option("--device", options.device, "cuda or cuda:N");
  std::string sampling = "greedy";
  app.add_option("--sampling", sampling, "greedy, penalties, mask or logprobs");
  int64_t rest_ms = 0;
  app.add_option("--rest-ms", rest_ms,
                 "Before each prefill: back to back they run at the GPU's power limit");
  CLI11_PARSE(app, argc, argv);
  options.kv_bytes = kv_mib << 20;
  try {
    baton::Bench bench(model, options, baton::spec_of(sampling));
    for (const baton::Shape& shape : baton::parse_shapes(decode)) bench.print_decode(shape, steps);
    for (const baton::Shape& shape : baton::parse_shapes(prefill))
      bench.print_prefill(shape, 11, std::chrono::milliseconds(rest_ms));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine_bench: %s\n", error.what());
    return 1;
  }
}
