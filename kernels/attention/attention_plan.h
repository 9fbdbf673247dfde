// How a GPU cuts a step's attention into work: flat lists that persistent CTAs (thread blocks) draw
// from, made on the host once a step and used by all layers of a kv_group. The lists hold the real
// number of items, so a captured graph keeps its pointers and grids whatever the batch. Engine
// thread only.
//
// Numerics: a sequence's keys are summed in units of tokens whose size depends on its own length
// alone, and units are added in order. Whether one CTA takes all units of a sequence or many CTAs
// take one each depends on the batch, but not the order of the additions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"

namespace baton {

inline constexpr int32_t kAttentionHeadDimMax = 256;
inline constexpr int32_t kAttentionGroupMax = 16;  // query heads a KV head
inline constexpr int32_t kDecodeMaxTokens = 8;     // up to here the decode kernel takes a sequence
inline constexpr int32_t kDecodeRows = 16;         // rows (token, head of the group) a decode item
inline constexpr int32_t kDecodeTile = 64;         // keys at a time
inline constexpr int32_t kDecodeCtasPerSm = 2;
inline constexpr int32_t kPrefillRows = 128;  // rows (token, head of the group) a prefill item

// Work for each KV head: units [unit_begin, unit_end) of unit_tokens keys for some rows of a
// sequence. An item that is only a part of its sequence leaves the sums of unit u in slot `slot` +
// u - first_unit; who finishes the last of num_units adds them up.
struct DecodeWork {
  const int32_t* block_table;
  int32_t row;          // of q and y: the first token's
  int32_t position;     // the first token's
  int32_t first_new;    // position of the sequence's first new token
  int32_t first_head;   // of the group: the first row's
  int32_t num_rows;     // (token, head): at most kDecodeRows
  int32_t unit_tokens;  // 0: no tokens, write zeros
  int32_t unit_begin;
  int32_t unit_end;
  int32_t slot;  // -1: the item is the whole sequence
  int32_t first_unit;
  int32_t num_units;
};

struct PrefillWork {
  int32_t sequence;
  int32_t row_begin;  // first of at most kPrefillRows rows
};

// Device pointers, and what the host needs to know to launch. Equal for any two batches that both
// have (or have not) decodes and prefills, so a graph captured with one serves the other.
struct AttentionPlan {
  const DecodeWork* decode_work = nullptr;
  const PrefillWork* prefill_work = nullptr;
  const int32_t* counts = nullptr;  // [2] entries of decode_work, of prefill_work
  int32_t* queues = nullptr;        // [4] next item and CTAs done, decode and prefill; zero between
                                    // launches
  int32_t* tickets = nullptr;       // [slots, num_kv_heads] finished units, at the sequence's first
                                    // slot; zero between launches
  float* partials = nullptr;        // [slots, num_kv_heads, kDecodeRows * (head_dim + 2)]
  int32_t num_sms = 0;
  bool has_decode = false;
  bool has_prefill = false;
};

// What the layers of a kv_group share.
struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;  // 0 = all
};

// Where a plan's arrays lie. `lists_host` is what the caller copies to `lists` (lists_bytes, every
// step, in the stream and before the step's first kernel: attention reads lists, block
// tables and older keys and values while the kernel before it still runs); `scratch` holds nothing
// from step to step.
struct AttentionPlanMemory {
  std::byte* lists_host = nullptr;  // pinned, 16-byte aligned
  std::byte* lists = nullptr;       // device, 16-byte aligned
  std::byte* scratch = nullptr;     // device, 16-byte aligned, zeroed once at start
};

class AttentionPlanner {
 public:
  // For batches of up to max_sequences (padding included) and max_tokens new tokens.
  AttentionPlanner(const AttentionShape& shape, int32_t max_sequences, int32_t max_tokens,
                   int32_t num_sms);

  int64_t lists_bytes() const;    // of a full batch; a multiple of 16
  int64_t scratch_bytes() const;  // a multiple of 16

  // Writes the work lists to memory.lists_host; returns how many bytes of them the step needs on
  // the device (<= lists_bytes; copying lists_bytes always is right too, and is what a graph does).
  // `sequences` are those of the batch, block tables as the device knows them. Allocates nothing.
  int64_t make_plan(std::span<const AttentionSequence> sequences, const AttentionPlanMemory& memory,
                    AttentionPlan* plan) const;

 private:
  int32_t max_decode_work() const;
  int32_t max_prefill_work() const;
  int32_t max_slots() const;
  void add_decodes(std::span<const AttentionSequence> sequences, DecodeWork* work,
                   int32_t* count) const;
  void add_prefills(std::span<const AttentionSequence> sequences, PrefillWork* work,
                    int32_t* count) const;

  const AttentionShape shape_;
  const int32_t group_;  // query heads a KV head
  const int32_t max_sequences_, max_tokens_, num_sms_;
};

}  // namespace baton
