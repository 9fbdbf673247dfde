// The CPU backend: checks arguments, cuts each op into tasks and runs the chosen ISA's loops on the
// pool. How the work is cut never changes a result. Called from the engine thread only.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"

namespace baton {
namespace {

bool is_float(Dtype dtype) {
  return dtype_info(dtype).block_elems == 1;
}

class CpuLinearWeight final : public LinearWeight {
 public:
  // Float weights that lie in one piece stay where they are.
  explicit CpuLinearWeight(const TensorView& view)
      : LinearWeight(view.rows, view.cols),
        dtype_(view.dtype),
        data_(static_cast<const uint8_t*>(view.data)) {}
  CpuLinearWeight(const TensorView& view, AlignedBuffer owned)
      : LinearWeight(view.rows, view.cols),
        dtype_(view.dtype),
        owned_(std::move(owned)),
        data_(owned_.data()) {}

  Dtype dtype() const { return dtype_; }
  const uint8_t* data() const { return data_; }  // packed, or rows as in the file

 private:
  const Dtype dtype_;
  AlignedBuffer owned_;
  const uint8_t* const data_;
};

// The file's own rows.
class CpuEmbeddingTable final : public EmbeddingTable {
 public:
  explicit CpuEmbeddingTable(const TensorView& view)
      : EmbeddingTable(view.rows, view.cols), view_(view) {}
  const TensorView& view() const { return view_; }

 private:
  const TensorView view_;
};

class CpuMemory final : public BackendMemory {
 public:
  explicit CpuMemory(AlignedBuffer buffer)
      : BackendMemory(reinterpret_cast<std::byte*>(buffer.data())), buffer_(std::move(buffer)) {}

 private:
  AlignedBuffer buffer_;
};

class CpuBackend final : public BackendOf<float> {
 public:
  CpuBackend(int32_t threads, const CpuIsa& isa)
      : isa_(isa), pool_(threads), attention_scratch_(threads) {}

  std::unique_ptr<LinearWeight> prepare_stacked(std::span<const TensorView> stacked,
                                                MatrixInput input) override;
  std::unique_ptr<EmbeddingTable> prepare_table(const TensorView& table) override {
    return std::make_unique<CpuEmbeddingTable>(table);
  }
  std::unique_ptr<BackendMemory> allocate(int64_t bytes) override {
    return std::make_unique<CpuMemory>(AlignedBuffer(bytes));
  }
  std::unique_ptr<BackendMemory> upload(const void* data, int64_t bytes) override;
  void embedding(const EmbeddingArgs<float>& args) override;
  void rms_norm(const RmsNormArgs<float>& args) override;
  void gather_rows(const GatherRowsArgs<float>& args) override;
  void linear(const LinearArgs<float>& args) override { multiply(args, false); }
  void add_linear(const LinearArgs<float>& args) override { multiply(args, true); }
  void logits(const LinearArgs<float>& args) override { multiply(args, false); }
  void rope_kv(const RopeKvArgs<float>& args) override;
  void attention(const AttentionArgs<float>& args) override;
  void activation(const ActivationArgs<float>& args) override;
  const char* isa() const override { return isa_.name; }

 private:
  // Calls task(begin, end) over [0, count) in pieces; one piece where `cost` (about one per float
  // touched) is small, because waking the pool takes longer than the work.
  template <typename Task>
  void for_ranges(int64_t count, int64_t cost, const Task& task);
  void multiply(const LinearArgs<float>& args, bool accumulate);
  void quantize_inputs(const LinearArgs<float>& args, int64_t cols);
  void run_linear(const LinearJob& job, bool quantized);

  const CpuIsa& isa_;
  ThreadPool pool_;
  std::vector<ActivationBlock> blocks_;  // quantised inputs of the current linear
  std::vector<AttentionTile> tiles_;
  std::vector<std::vector<float>> attention_scratch_;  // by thread
};

template <typename Task>
void CpuBackend::for_ranges(int64_t count, int64_t cost, const Task& task) {
  constexpr int64_t kSmallCost = 16 * 1024;
  const int64_t pieces = cost < kSmallCost ? 1 : std::min<int64_t>(count, 4 * pool_.threads());
  pool_.parallel_for(
      pieces, [&](int64_t i, int32_t) { task(count * i / pieces, count * (i + 1) / pieces); });
}

// The matrices below each other, as one.
TensorView stack(std::span<const TensorView> parts, AlignedBuffer& buffer) {
  TensorView whole = parts[0];
  for (const TensorView& part : parts.subspan(1)) whole.rows += part.rows;
  const int64_t row_bytes = dtype_bytes(whole.dtype, whole.cols);
  buffer = AlignedBuffer(whole.rows * row_bytes);
  uint8_t* at = buffer.data();
  for (const TensorView& part : parts) {
    std::memcpy(at, part.data, static_cast<size_t>(part.rows * row_bytes));
    at += part.rows * row_bytes;
  }
  whole.data = buffer.data();
  return whole;
}

std::unique_ptr<LinearWeight> CpuBackend::prepare_stacked(std::span<const TensorView> stacked,
                                                          MatrixInput /*input*/) {
  const DtypeInfo& info = dtype_info(stacked[0].dtype);
  if (stacked[0].cols % info.block_elems != 0) {
    throw ConfigError(std::string("weight of type ") + info.name + ": got " +
                      std::to_string(stacked[0].cols) + " columns, want a multiple of " +
                      std::to_string(info.block_elems));
  }
  AlignedBuffer rows;
  const TensorView weight = stacked.size() == 1 ? stacked[0] : stack(stacked, rows);
  if (is_float(weight.dtype)) {
    return stacked.size() == 1 ? std::make_unique<CpuLinearWeight>(weight)
                               : std::make_unique<CpuLinearWeight>(weight, std::move(rows));
  }
  const int64_t groups = (weight.rows + kGroupRows - 1) / kGroupRows;
  AlignedBuffer packed(groups * group_bytes(packed_layout(weight.dtype), weight.cols));
  for_ranges(groups, weight.rows * weight.cols, [&](int64_t begin, int64_t end) {
    pack_weight(weight.dtype, weight.data, weight.rows, weight.cols, begin, end, packed.data());
  });
  return std::make_unique<CpuLinearWeight>(weight, std::move(packed));
}

std::unique_ptr<BackendMemory> CpuBackend::upload(const void* data, int64_t bytes) {
  AlignedBuffer copy(bytes);
  std::memcpy(copy.data(), data, static_cast<size_t>(bytes));
  return std::make_unique<CpuMemory>(std::move(copy));
}

void CpuBackend::embedding(const EmbeddingArgs<float>& args) {
  const TensorView& table = static_cast<const CpuEmbeddingTable&>(*args.table).view();
  const int64_t hidden = table.cols;
  const int64_t row_bytes = dtype_bytes(table.dtype, hidden);
  for_ranges(args.num_tokens, args.num_tokens * hidden, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      CHECK(args.ids[t] >= 0 && args.ids[t] < table.rows)
          << "token id " << args.ids[t] << " of " << table.rows << ": ";
      const auto* row = static_cast<const uint8_t*>(table.data) + args.ids[t] * row_bytes;
      dequantize(table.dtype, row, args.y + t * hidden, hidden);
    }
  });
}

void CpuBackend::gather_rows(const GatherRowsArgs<float>& args) {
  for (int32_t i = 0; i < args.num_rows; ++i) {
    std::memcpy(args.y + int64_t{i} * args.cols, args.x + int64_t{args.rows[i]} * args.cols,
                static_cast<size_t>(args.cols) * sizeof(float));
  }
}

void CpuBackend::rms_norm(const RmsNormArgs<float>& args) {
  for_ranges(args.rows, args.rows * args.cols,
             [&](int64_t begin, int64_t end) { isa_.rms_norm(args, begin, end); });
}

void CpuBackend::activation(const ActivationArgs<float>& args) {
  for_ranges(args.rows, args.rows * args.cols * 4,
             [&](int64_t begin, int64_t end) { isa_.activation(args, begin, end); });
}

void CpuBackend::rope_kv(const RopeKvArgs<float>& args) {
  CHECK(is_float(args.kv.dtype)) << "KV dtype is " << dtype_info(args.kv.dtype).name << ": ";
  CHECK_LE(args.rotary_dim, args.kv.head_dim) << "rope_kv";
  const int64_t row =
      static_cast<int64_t>(args.num_heads + 2 * args.kv.num_kv_heads) * args.kv.head_dim;
  for_ranges(args.num_tokens, args.num_tokens * row, [&](int64_t begin, int64_t end) {
    isa_.rope_kv(args, static_cast<int32_t>(begin), static_cast<int32_t>(end));
  });
}

void CpuBackend::multiply(const LinearArgs<float>& args, bool accumulate) {
  const auto& weight = static_cast<const CpuLinearWeight&>(*args.weight);
  LinearJob job = {.dtype = weight.dtype(),
                   .weight = weight.data(),
                   .rows = weight.rows(),
                   .cols = weight.cols(),
                   .x = args.x,
                   .bias = args.bias,
                   .y = args.y,
                   .y_stride = args.y_stride > 0 ? args.y_stride : weight.rows(),
                   .num_tokens = args.num_tokens,
                   .accumulate = accumulate};
  const bool quantized = !is_float(weight.dtype());
  if (quantized) {
    quantize_inputs(args, weight.cols());
    job.blocks = blocks_.data();
  }
  run_linear(job, quantized);
}

void CpuBackend::quantize_inputs(const LinearArgs<float>& args, int64_t cols) {
  const size_t needed = static_cast<size_t>(args.num_tokens) * (cols / kCellCols);
  if (blocks_.size() < needed) blocks_.resize(needed);
  for_ranges(args.num_tokens, args.num_tokens * cols, [&](int64_t begin, int64_t end) {
    isa_.quantize(args.x, cols, args.num_tokens, static_cast<int32_t>(begin),
                  static_cast<int32_t>(end), blocks_.data());
  });
}

void CpuBackend::run_linear(const LinearJob& job, bool quantized) {
  // Tokens in blocks whose inputs stay in a core's L2 while the weights stream past; rows in
  // pieces, some per thread, so that a thread that lost its core for a while delays nobody.
  constexpr int32_t kTokenBlock = 128;
  const int64_t groups = (job.rows + kGroupRows - 1) / kGroupRows;
  const int64_t token_blocks = (job.num_tokens + kTokenBlock - 1) / kTokenBlock;
  const int64_t wanted_pieces = 8 * pool_.threads();
  const int64_t pieces =
      std::min(groups, (wanted_pieces + token_blocks - 1) / std::max<int64_t>(token_blocks, 1));
  const auto loop = quantized ? isa_.linear_quantized : isa_.linear_float;
  pool_.parallel_for(pieces * token_blocks, [&](int64_t i, int32_t) {
    const int64_t piece = i % pieces, block = i / pieces;
    LinearTile tile;
    tile.row_begin = groups * piece / pieces * kGroupRows;
    tile.row_end = std::min(job.rows, groups * (piece + 1) / pieces * kGroupRows);
    tile.token_begin = static_cast<int32_t>(block) * kTokenBlock;
    tile.token_end = std::min(job.num_tokens, tile.token_begin + kTokenBlock);
    loop(job, tile);
  });
}

void CpuBackend::attention(const AttentionArgs<float>& args) {
  const int32_t group = args.num_heads / args.kv.num_kv_heads;
  CHECK_EQ(args.num_heads % args.kv.num_kv_heads, 0) << "attention";
  CHECK_LE(args.kv.head_dim, kMaxHeadDim) << "attention";
  const int32_t tile_tokens = std::max(1, kAttentionTileRows / group);
  tiles_.clear();
  for (int32_t s = 0; s < args.batch.num_sequences; ++s) {
    const int32_t num_tokens = args.batch.sequences[s].num_tokens;
    for (int32_t begin = 0; begin < num_tokens; begin += tile_tokens) {
      for (int32_t head = 0; head < args.kv.num_kv_heads; ++head) {
        tiles_.push_back({s, head, begin, std::min(num_tokens, begin + tile_tokens)});
      }
    }
  }
  const int64_t floats = attention_scratch_floats(tile_tokens * group, args.kv.head_dim);
  for (std::vector<float>& scratch : attention_scratch_) {
    if (static_cast<int64_t>(scratch.size()) < floats) scratch.resize(floats);
  }
  // The last tiles of a prompt see the most keys: they go first, so that no thread ends with a long
  // one.
  const int64_t count = static_cast<int64_t>(tiles_.size());
  pool_.parallel_for(count, [&](int64_t i, int32_t thread) {
    isa_.attention(args, tiles_[count - 1 - i], attention_scratch_[thread].data());
  });
}

}  // namespace

std::unique_ptr<BackendOf<float>> make_cpu_backend(int32_t threads, const char* isa) {
  if (threads < 1) {
    throw ConfigError("threads: got " + std::to_string(threads) + ", want at least 1");
  }
  return std::make_unique<CpuBackend>(threads, find_isa(isa));
}

}  // namespace baton
