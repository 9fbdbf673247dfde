// The GPU's attention against the CPU's on the same pages: poisoned with NaN wherever nothing was
// written, in random order.
#include "kernels/attention/attention_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "kernels/cpu/half.h"
#include "kernels/cpu/testing.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr unsigned kSeed = 9157;

struct Shape {
  int32_t num_heads = 8, num_kv_heads = 2, head_dim = 128, page_tokens = 64;
  int32_t window = 0;
  float soft_cap = 0;

  int64_t row() const { return static_cast<int64_t>(num_heads) * head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

struct Chunk {
  int32_t num_tokens, first_pos;
};

DeviceBuffer upload(const void* data, int64_t bytes) {
  DeviceBuffer buffer(std::max<int64_t>(bytes, 16));
  cuda_check(cudaMemcpy(buffer.data(), data, bytes, cudaMemcpyHostToDevice), "upload");
  return buffer;
}

// Random q and pages of some sequences, on host and device.
class Fixture {
 public:
  Fixture(unsigned seed, const Shape& shape, std::vector<Chunk> chunks)
      : shape_(shape), chunks_(std::move(chunks)), random_(seed) {
    for (const float x : random_floats(random_, 1 << 16)) noise_.push_back(bfloat_from_float(x));
    int32_t num_pages = 0;
    for (const Chunk& chunk : chunks_) num_pages += pages_of(chunk);
    const int64_t slice = 4ll * shape.num_kv_heads * shape.page_tokens * shape.head_dim;
    layer_ = {.page_bytes = 2 * slice + 32,
              .layer_offset = slice + 16,
              .page_tokens = shape.page_tokens,
              .num_kv_heads = shape.num_kv_heads,
              .head_dim = shape.head_dim,
              .dtype = Dtype::kBF16};
    pages_.assign(num_pages * layer_.page_bytes, std::byte{0xff});  // NaN
    std::vector<int32_t> order(num_pages);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    int32_t row = 0;
    for (const Chunk& chunk : chunks_) {
      tables_.emplace_back(order.end() - pages_of(chunk), order.end());
      order.resize(order.size() - pages_of(chunk));
      write_pages(tables_.back(), chunk.first_pos + chunk.num_tokens);
      rows_.push_back(row);
      row += std::max(chunk.num_tokens, 1);  // a padding sequence has a row too
    }
    num_rows_ = row;
    q_stride_ = shape.row() + 24;
    for (const float x : random_floats(random_, num_rows_ * q_stride_, 1.5f)) {
      q_bits_.push_back(bfloat_from_float(x));
      q_.push_back(float_from_bfloat(q_bits_.back()));
    }
    device_pages_ = upload(pages_.data(), static_cast<int64_t>(pages_.size()));
    device_q_ = upload(q_bits_.data(), 2 * static_cast<int64_t>(q_bits_.size()));
  }

  int32_t num_rows() const { return num_rows_; }
  int32_t row_of(size_t sequence) const { return rows_[sequence]; }

  // y of the given sequences as one batch on the GPU; rows of others hold NaN. Runs several layers
  // of one plan, as a step does.
  std::vector<uint16_t> run(const std::vector<size_t>& members) const {
    Step step(*this, members);
    step.load(members);
    for (int layer = 0; layer < 3; ++layer) step.enqueue();
    return step.result();
  }
  // The same by a graph that was captured for another batch.
  std::vector<uint16_t> run_captured(const std::vector<size_t>& captured,
                                     const std::vector<size_t>& members) const {
    Step step(*this, captured);
    step.load(captured);
    cuda_check(cudaStreamBeginCapture(step.stream.get(), cudaStreamCaptureModeThreadLocal),
               "graph");
    for (int layer = 0; layer < 3; ++layer) step.enqueue();
    CudaGraph graph;
    graph.end_capture(step.stream.get());
    step.load(members);
    graph.launch(step.stream.get());
    return step.result();
  }
  std::vector<uint16_t> run_all() const {
    std::vector<size_t> all(chunks_.size());
    std::iota(all.begin(), all.end(), 0);
    return run(all);
  }

  // The largest relative error (L2) of a token's row; infinite where a result is NaN or a padding
  // row is not zero.
  double largest_error(BackendOf<float>& cpu, const std::vector<uint16_t>& y) const {
    double largest = 0;
    for (size_t s = 0; s < chunks_.size(); ++s) {
      const std::vector<float> want = reference(cpu, s);
      for (int32_t t = 0; t < std::max(chunks_[s].num_tokens, 1); ++t) {
        double error = 0, norm = chunks_[s].num_tokens == 0 ? 1e-30 : 0;
        for (int64_t e = 0; e < shape_.row(); ++e) {
          const double got = float_from_bfloat(y[(rows_[s] + t) * shape_.row() + e]);
          const double expected = want[t * shape_.row() + e];
          error += (got - expected) * (got - expected);
          norm += expected * expected;
        }
        const double relative = std::sqrt(error / norm);
        if (!(relative <= largest)) largest = std::isnan(relative) ? INFINITY : relative;
      }
    }
    return largest;
  }

 private:
  // What a step owns on the device, and its one plan.
  struct Step {
    Step(const Fixture& fixture, const std::vector<size_t>& members)
        : fixture(fixture),
          planner({fixture.shape_.num_heads, fixture.shape_.num_kv_heads, fixture.shape_.head_dim,
                   fixture.shape_.window},
                  static_cast<int32_t>(members.size()), fixture.num_rows_,
                  open_cuda_device(0).num_sms),
          lists_host(planner.lists_bytes()),
          lists(planner.lists_bytes()),
          scratch(planner.scratch_bytes()),
          sequences(members.size() * sizeof(AttentionSequence)),
          y(2 * fixture.num_rows_ * fixture.shape_.row()) {
      cuda_check(cudaMemset(scratch.data(), 0, scratch.bytes()), "clear");
      cuda_check(cudaMemset(y.data(), 0xff, y.bytes()), "poison");
    }

    void load(const std::vector<size_t>& members) {
      std::vector<AttentionSequence> batch;
      for (const size_t s : members) {
        const Chunk& chunk = fixture.chunks_[s];
        std::vector<int32_t> table = fixture.tables_[s];
        fixture.leave_window(&table, chunk);
        tables.push_back(upload(table.data(), 4 * static_cast<int64_t>(table.size())));
        batch.push_back(
            {fixture.rows_[s], chunk.num_tokens, chunk.first_pos, tables.back().as<int32_t>()});
      }
      const int64_t used =
          planner.make_plan(batch, {lists_host.data(), lists.data(), scratch.data()}, &plan);
      cuda_check(cudaMemcpy(lists.data(), lists_host.data(), used, cudaMemcpyHostToDevice),
                 "lists");
      cuda_check(
          cudaMemcpy(sequences.data(), batch.data(), sequences.bytes(), cudaMemcpyHostToDevice),
          "sequences");
    }

    void enqueue() {
      AttentionArgs<Bf16> args = {
          .q = fixture.device_q_.as<Bf16>(),
          .y = y.as<Bf16>(),
          .q_stride = fixture.q_stride_,
          .batch = {sequences.as<AttentionSequence>(),
                    static_cast<int32_t>(sequences.bytes() / sizeof(AttentionSequence)), &plan},
          .kv = fixture.layer_,
          .num_heads = fixture.shape_.num_heads,
          .scale = fixture.shape_.scale(),
          .window = fixture.shape_.window,
          .soft_cap = fixture.shape_.soft_cap};
      args.kv.base = fixture.device_pages_.data();
      attention_cuda(args, stream.get());
    }

    std::vector<uint16_t> result() {
      stream.synchronize();
      std::vector<uint16_t> host(y.bytes() / 2);
      cuda_check(cudaMemcpy(host.data(), y.data(), y.bytes(), cudaMemcpyDeviceToHost), "y");
      return host;
    }

    const Fixture& fixture;
    const AttentionPlanner planner;
    PinnedBuffer lists_host;
    DeviceBuffer lists, scratch, sequences, y;
    std::vector<DeviceBuffer> tables;
    AttentionPlan plan;
    CudaStream stream;
  };

  int32_t pages_of(const Chunk& chunk) const {
    return (chunk.first_pos + chunk.num_tokens + shape_.page_tokens - 1) / shape_.page_tokens;
  }

  void leave_window(std::vector<int32_t>* table, const Chunk& chunk) const {
    if (shape_.window == 0) return;
    const int32_t first = chunk.first_pos - shape_.window + 1;
    for (int32_t p = 0; (p + 1) * shape_.page_tokens <= first; ++p) (*table)[p] = -1;
  }

  void write_pages(const std::vector<int32_t>& table, int32_t length) {
    for (int32_t head = 0; head < 2 * shape_.num_kv_heads; ++head) {
      for (int32_t pos = 0; pos < length; ++pos) {
        const int64_t in_slice =
            (static_cast<int64_t>(head) * shape_.page_tokens + pos % shape_.page_tokens) *
            shape_.head_dim;
        std::byte* to = pages_.data() + table[pos / shape_.page_tokens] * layer_.page_bytes +
                        layer_.layer_offset + 2 * in_slice;
        const size_t from = random_() % (noise_.size() - shape_.head_dim);
        std::memcpy(to, noise_.data() + from, 2 * shape_.head_dim);
      }
    }
  }

  std::vector<float> reference(BackendOf<float>& cpu, size_t s) const {
    std::vector<float> y(std::max(chunks_[s].num_tokens, 1) * shape_.row());
    if (chunks_[s].num_tokens == 0) return y;
    const AttentionSequence sequence = {0, chunks_[s].num_tokens, chunks_[s].first_pos,
                                        tables_[s].data()};
    PagedLayer layer = layer_;
    layer.base = const_cast<std::byte*>(pages_.data());
    cpu.attention({.q = q_.data() + rows_[s] * q_stride_,
                   .y = y.data(),
                   .q_stride = q_stride_,
                   .batch = {.sequences = &sequence, .num_sequences = 1},
                   .kv = layer,
                   .num_heads = shape_.num_heads,
                   .scale = shape_.scale(),
                   .window = shape_.window,
                   .soft_cap = shape_.soft_cap});
    return y;
  }

  const Shape shape_;
  const std::vector<Chunk> chunks_;
  std::mt19937 random_;
  std::vector<uint16_t> noise_;  // where rows of K and V are cut from
  PagedLayer layer_;
  std::vector<std::byte> pages_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int32_t> rows_;
  int32_t num_rows_ = 0;
  int64_t q_stride_ = 0;
  std::vector<uint16_t> q_bits_;
  std::vector<float> q_;
  DeviceBuffer device_pages_, device_q_;
};

// Decodes, drafts of up to 8 tokens, prompts, prefixes: lengths about every border.
const std::vector<Chunk> kMixed = {
    {1, 0},   {1, 1},    {1, 15},  {1, 16},  {1, 62},  {1, 63},   {1, 64},    {1, 127}, {0, 0},
    {1, 128}, {1, 1023}, {2, 63},  {8, 0},   {5, 700}, {1, 3000}, {9, 0},     {17, 0},  {64, 0},
    {65, 3},  {0, 7},    {33, 95}, {130, 0}, {40, 60}, {20, 777}, {300, 150}, {1, 31}};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int32_t dim : {64, 80, 96, 128, 256}) {
    for (const int32_t page_tokens : {16, 64, 128}) {
      all.push_back({.head_dim = dim, .page_tokens = page_tokens});
    }
    for (const int32_t group : {1, 2, 7, 8, 16}) {
      all.push_back({.num_heads = 3 * group, .num_kv_heads = 3, .head_dim = dim});
    }
    for (const int32_t window : {1, 17, 64, 200}) {
      all.push_back({.head_dim = dim, .page_tokens = 16, .window = window});
      all.push_back({.head_dim = dim, .window = window});
    }
    all.push_back({.head_dim = dim, .soft_cap = 3});
    all.push_back({.head_dim = dim, .page_tokens = 48, .window = 100, .soft_cap = 20});
  }
  for (const int32_t dim : {16, 24}) {  // what no tensor-core kernel takes
    for (const int32_t window : {0, 17}) {
      all.push_back({.head_dim = dim, .page_tokens = 16, .window = window, .soft_cap = 5});
    }
  }
  return all;
}

TEST_CASE("attention on the GPU agrees with the CPU's: mixed ragged batches, poisoned pages") {
  if (no_gpu()) return;
  const auto cpu = make_cpu_backend(4);
  double worst = 0;
  for (const Shape& shape : shapes()) {
    CAPTURE(shape.num_heads);
    CAPTURE(shape.head_dim);
    CAPTURE(shape.page_tokens);
    CAPTURE(shape.window);
    CAPTURE(shape.soft_cap);
    const Fixture fixture(kSeed, shape, kMixed);
    const double error = fixture.largest_error(*cpu, fixture.run_all());
    CHECK_LT(error, 1e-2);
    worst = std::max(worst, error);
  }
  std::printf("attention: largest relative error of a row %.2e\n", worst);
  std::fflush(stdout);
}

TEST_CASE("a sequence's attention has the same bits alone and in every batch") {
  if (no_gpu()) return;
  for (const int32_t dim : {64, 80, 96, 128, 256}) {
    const Shape shape = {.head_dim = dim};
    CAPTURE(dim);
    std::vector<Chunk> chunks = kMixed;
    for (int i = 0; i < 200; ++i) chunks.push_back({1, 900 + 3 * i});  // so that none is split
    const Fixture fixture(kSeed + 1, shape, chunks);
    const std::vector<uint16_t> all = fixture.run_all();
    for (size_t s = 0; s < chunks.size(); s += s < kMixed.size() ? 1 : 23) {
      CAPTURE(s);
      const std::vector<uint16_t> alone = fixture.run({s});  // split as far as it goes
      const int64_t at = fixture.row_of(s) * shape.row();
      const int64_t bytes = 2 * std::max(chunks[s].num_tokens, 1) * shape.row();
      CHECK_EQ(std::memcmp(all.data() + at, alone.data() + at, bytes), 0);
    }
  }
}

TEST_CASE("a captured graph of decodes serves any other batch of its size") {
  if (no_gpu()) return;
  std::vector<Chunk> chunks;
  for (int i = 0; i < 8; ++i) chunks.push_back({1, 100 * i});
  for (int i = 0; i < 8; ++i) chunks.push_back({i % 3 == 2 ? 0 : 1 + i, 900 * i});
  const Fixture fixture(kSeed + 4, {}, chunks);
  const std::vector<size_t> first = {0, 1, 2, 3, 4, 5, 6, 7}, then = {8, 9, 10, 11, 12, 13, 14, 15};
  CHECK_EQ(fixture.run_captured(first, then), fixture.run(then));
  CHECK_EQ(fixture.run_captured(then, first), fixture.run(first));
}

TEST_CASE("long contexts: every split of a sequence gives the CPU's result") {
  if (no_gpu()) return;
  const auto cpu = make_cpu_backend(4);
  for (const int32_t window : {0, 1500}) {
    const Fixture fixture(kSeed + 2, {.num_heads = 32, .num_kv_heads = 8, .window = window},
                          {{1, 9000}, {4, 2047}, {1, 4095}, {12, 5000}});
    CHECK_LT(fixture.largest_error(*cpu, fixture.run_all()), 1e-2);
  }
}

TEST_CASE("prompts of more items than multiprocessors: a CTA's later items are right too") {
  if (no_gpu()) return;
  const auto cpu = make_cpu_backend(4);
  for (const int32_t dim : {64, 80, 96, 128, 256}) {
    CAPTURE(dim);
    const Fixture fixture(kSeed + 3, {.num_heads = 32, .num_kv_heads = 16, .head_dim = dim},
                          {{600, 500}, {9, 100}, {333, 0}, {500, 70}});
    CHECK_LT(fixture.largest_error(*cpu, fixture.run_all()), 1e-2);
  }
}

}  // namespace
}  // namespace baton
