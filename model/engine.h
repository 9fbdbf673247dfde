// The engine: one step of the model over a plain StepInput. Touches no scheduler state; the
// scheduler touches no engine state. The same StepInput will be broadcast to the ranks of a worker;
// today there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/messages.h"
#include "model/kv_layout.h"
#include "model/page_pool.h"

namespace baton {

// A choice's sampler state (penalty counts, generated count, last token, ended or not) lives in the
// engine under a slot number that the scheduler hands out. It is a function of (spec, tokens):
// opening a slot replays the tokens.
struct SlotOpen {
  int32_t slot = 0;
  SamplingSpec spec;
  int32_t choice = 0;  // absolute number: part of the random key (seed, choice, position)
  int32_t prompt_len = 0;
  std::vector<TokenId> tokens;  // prompt and what has been generated so far
};

// A sequence's share of a step: its tokens from first_pos on. `tokens` empty and use_last: one
// token, the slot's last sampled one (it may still be in the making when the step is prepared). The
// chunk is skipped if that slot has ended since.
struct Chunk {
  uint64_t seq = 0;  // the scheduler's handle; comes back in StepOutput
  int32_t first_pos = 0;
  std::vector<TokenId> tokens;
  bool use_last = false;
  // Per kv_group: page of positions [i * page_tokens, (i + 1) * page_tokens); -1 where it has left
  // the window.
  std::vector<std::vector<int32_t>> block_tables;
  // Sample once for each from the logits of the last token; a decode chunk has its one slot here.
  std::vector<int32_t> sample_slots;
  bool all_logits = false;  // return the logits of every token (baton generate --logits, tests)
  // >= 0: log-probabilities of the chunk's tokens and that many alternatives.
  int32_t prompt_logprobs = -1;
  // For prompt_logprobs: the prompt's token after this chunk, -1 if it ends here.
  TokenId next_token = -1;
};

// A whole page, before anything else in the step: the partial last page of a prompt, once a choice.
struct PageCopy {
  int32_t group = 0;
  int32_t src_page = 0;
  int32_t dst_page = 0;
};

// The push plan: after layer l of this step has written its K and V, that layer's slice of src_page
// goes to dst_page of the peer.
struct PushPage {
  uint64_t transfer = 0;  // the handoff it belongs to
  int32_t group = 0;
  int32_t src_page = 0;
  int32_t dst_page = 0;
};

struct StepInput {
  uint64_t step = 0;
  std::vector<int32_t> closed_slots;  // first
  std::vector<SlotOpen> opened_slots;
  std::vector<PageCopy> page_copies;
  std::vector<Chunk> chunks;
  std::vector<PushPage> pushes;

  int32_t num_tokens() const {
    int32_t total = 0;
    for (const Chunk& chunk : chunks)
      total += chunk.use_last ? 1 : static_cast<int32_t>(chunk.tokens.size());
    return total;
  }
};

struct Sampled {
  uint64_t seq = 0;
  int32_t slot = 0;
  int32_t choice = 0;
  int32_t position = 0;  // of the sampled token
  TokenId token = 0;
  // kStop: EOS or a stop id; kLength: max_tokens or the context's end.
  FinishReason finish = FinishReason::kNone;
  std::optional<TokenId> stop_id;
  float logprob = 0;  // of the raw distribution, before temperature and penalties
  std::vector<TokenLogprob> top;
};

struct ChunkLogprobs {
  uint64_t seq = 0;
  int32_t first_position = 0;  // of tokens[0]
  std::vector<TokenLogprob> tokens;
  std::vector<std::vector<TokenLogprob>> top;
};

struct StepOutput {
  uint64_t step = 0;
  std::vector<Sampled> sampled;  // in the order of chunks and sample_slots; skipped ones are absent
  std::vector<float> logits;     // of the chunks with all_logits, in order: float32 [tokens, vocab]
  std::vector<ChunkLogprobs> prompt_logprobs;
  int64_t compute_us = 0;
  // When the last of it ended, as Clock counts; at most some microseconds early. 0: nothing was
  // computed.
  int64_t computed_at_us = 0;
  std::string error;  // not empty: the step failed, the worker ends
};

// Told of each layer's KV write, in the order of steps and layers, by one thread of the engine's
// (CPU: the engine thread, after the layer's rope_kv; CUDA, where layers_enqueued is refused: the
// thread that waits for the step, at its end).
class LayerSink {
 public:
  virtual ~LayerSink() = default;
  // All K and V of this step for `layer` (of the model) are in the pages.
  virtual void layer_written(const StepInput& step, int32_t layer) = 0;
  // The same before it has happened, from the engine thread: a GPU will have passed
  // `written[layer]` (a cudaEvent_t, of several layers at once) when that layer's K and V are in
  // the pages. The events live as long as the engine; a later step may record them again, behind
  // this one. False: a sink that cannot wait for events; layer_written follows.
  virtual bool layers_enqueued(const StepInput& step, std::span<void* const> written) {
    (void)step, (void)written;
    return false;
  }
};

// All calls come from one thread, the engine thread. Steps complete in the order of submit().
class Engine {
 public:
  virtual ~Engine() = default;

  // Steps that may have been submitted and not collected. Above 1, submit() only enqueues.
  virtual int32_t steps_in_flight_max() const = 0;
  // REQUIRES: fewer steps than that are in flight.
  virtual void submit(StepInput input) = 0;
  // What came out of the oldest step in flight; waits for it.
  virtual StepOutput collect() = 0;
  // `notify` is called whenever collect() would no longer wait, from a thread of the engine's, by
  // engines with several steps in flight.
  virtual void on_step_done(std::function<void()> notify) { (void)notify; }
  // The same when a step that pushes and samples is about to end, in less than a millisecond.
  virtual void on_step_ending(std::function<void()> notify) { (void)notify; }

  // One step from end to end. REQUIRES: none in flight.
  StepOutput execute(StepInput input) {
    submit(std::move(input));
    return collect();
  }
};

struct ModelFacts {
  std::string name;
  std::string architecture;
  int32_t vocab_size = 0;
  int32_t context_len = 0;
  std::vector<TokenId> eos_ids;
  TokenId bos_id = -1;
  SamplingSpec defaults;  // temperature, top_p, ... from generation_config.json
  std::string kv_compat_id;
  std::string numerics_id;
  int64_t weight_bytes = 0;
};

struct EngineOptions {
  std::string device = "cpu";  // cpu, cuda, cuda:N
  int32_t threads = 0;         // 0 = all cores
  std::string isa = "auto";
  int32_t page_tokens = 16;
  // auto: on CPU f16 for quantised weights, else f32; on CUDA bf16
  std::string kv_dtype = "auto";
  // Memory for pages, split so that every kv_group holds equally many tokens (kv_plan.h); 0 = one
  // sequence of the whole context, or what gpu_memory_utilization leaves.
  int64_t kv_bytes = 0;
  // On CUDA, where kv_bytes is 0: weights, scratch and pages together take this share of the GPU's
  // memory. 0 = one sequence of the whole context.
  double gpu_memory_utilization = 0;
  bool deterministic = false;      // CUDA: a row's result does not depend on its batch
  std::string gemm_table;          // CUDA: a file of gemm_table_tool; empty: the shipped one
  bool dummy_weights = false;      // random ones, from a config.json alone; CUDA only
  std::string cuda_graphs = "on";  // on: captured at start; lazy: when first needed; off
  int32_t running_max = 256;       // largest decode batch that gets a CUDA graph
  int64_t slab_bytes = 64 << 20;
  bool plain_pool = false;        // CUDA: one plain allocation instead of slabs (plain_slabs.h)
  int32_t step_tokens_max = 512;  // largest StepInput
  int64_t linger_us = 0;  // CUDA: a step with pushes is polled for at its end, so long at most
  int32_t context_len_max = 0;  // 0 = the model's
};

// A model in memory: weights, pools, engine. Owned by the worker (or by `baton generate`).
struct LoadedModel {
  ModelFacts facts;
  KvLayout layout;
  std::vector<std::unique_ptr<PagePool>> pools;  // per kv_group
  int32_t cuda_device = -1;  // the GPU whose memory the pools are; -1: the host's
  std::unique_ptr<Engine> engine;
};

// `path`: a Hugging Face folder or a GGUF file. `sink` may be null; borrowed. Throws ConfigError,
// one line, for anything missing, damaged or unsupported. `progress` (may be empty) is told the
// fraction loaded, 0..1.
LoadedModel load_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                       const std::function<void(double)>& progress = {});

}  // namespace baton
