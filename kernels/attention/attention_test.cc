#include "kernels/attention/attention.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/half.h"
#include "kernels/cpu/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr unsigned kSeed = 7041;

struct Shape {
  int32_t num_heads = 6, num_kv_heads = 2, head_dim = 64;
  int32_t window = 0;
  float soft_cap = 0;
  Dtype dtype = Dtype::kF32;
};

float narrowed(Dtype dtype, float value) {
  if (dtype == Dtype::kF16) return float_from_half(half_from_float(value));
  if (dtype == Dtype::kBF16) return float_from_bfloat(bfloat_from_float(value));
  return value;
}

void put(Dtype dtype, std::byte* dst, float value) {
  const uint16_t half = dtype == Dtype::kF16 ? half_from_float(value) : bfloat_from_float(value);
  if (dtype == Dtype::kF32) {
    std::memcpy(dst, &value, sizeof(value));
  } else {
    std::memcpy(dst, &half, sizeof(half));
  }
}

// A sequence of random q, k and v, and its pages: scattered, NaN wherever nothing was written.
struct Sequence {
  Sequence(std::mt19937& random, const Shape& shape, int32_t length, int32_t page_tokens)
      : shape(shape), length(length), page_tokens(page_tokens) {
    const int64_t kv_row = static_cast<int64_t>(shape.num_kv_heads) * shape.head_dim;
    q = random_floats(random, length * shape.num_heads * static_cast<int64_t>(shape.head_dim));
    k = random_floats(random, length * kv_row);
    v = random_floats(random, length * kv_row);
    for (float& x : k) x = narrowed(shape.dtype, x);
    for (float& x : v) x = narrowed(shape.dtype, x);
    write_pages();
  }

  void write_pages() {
    const int32_t num_pages = (length + page_tokens - 1) / page_tokens;
    const int64_t elem_bytes = shape.dtype == Dtype::kF32 ? 4 : 2;
    const int64_t slice = 2 * elem_bytes * shape.num_kv_heads * page_tokens * shape.head_dim;
    layer = {.page_bytes = slice + 96,
             .layer_offset = 32,
             .page_tokens = page_tokens,
             .num_kv_heads = shape.num_kv_heads,
             .head_dim = shape.head_dim,
             .dtype = shape.dtype};
    pages.assign(num_pages * layer.page_bytes, std::byte{0xff});  // NaN in every dtype
    layer.base = pages.data();
    for (int32_t i = 0; i < num_pages; ++i) block_table.push_back(num_pages - 1 - i);
    for (int32_t pos = 0; pos < length; ++pos) {
      for (int32_t h = 0; h < 2 * shape.num_kv_heads; ++h) {
        const std::vector<float>& source = h < shape.num_kv_heads ? k : v;
        const int64_t head = h % shape.num_kv_heads;
        for (int32_t d = 0; d < shape.head_dim; ++d) {
          const int64_t elem =
              (static_cast<int64_t>(h) * page_tokens + pos % page_tokens) * shape.head_dim + d;
          std::byte* dst = layer.base + block_table[pos / page_tokens] * layer.page_bytes +
                           layer.layer_offset + elem * elem_bytes;
          put(shape.dtype, dst, source[(pos * shape.num_kv_heads + head) * shape.head_dim + d]);
        }
      }
    }
  }

  // Attention of positions [begin, end), computed as one chunk.
  std::vector<float> run(BackendOf<float>& backend, int32_t begin, int32_t end) const {
    const int64_t row = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
    std::vector<float> y((end - begin) * row, NAN);
    std::vector<int32_t> table = block_table;
    if (shape.window > 0) {
      for (int32_t p = 0; (p + 1) * page_tokens <= begin - shape.window + 1; ++p) table[p] = -1;
    }
    const AttentionSequence sequence = {0, end - begin, begin, table.data()};
    backend.attention({.q = q.data() + begin * row,
                       .y = y.data(),
                       .q_stride = row,
                       .batch = {.sequences = &sequence, .num_sequences = 1},
                       .kv = layer,
                       .num_heads = shape.num_heads,
                       .scale = scale(),
                       .window = shape.window,
                       .soft_cap = shape.soft_cap});
    return y;
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

  // One head of one position, in double.
  std::vector<double> reference(int32_t pos, int32_t head) const {
    const int32_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
    const float* query =
        q.data() + (static_cast<int64_t>(pos) * shape.num_heads + head) * shape.head_dim;
    const int32_t first = shape.window > 0 ? std::max(0, pos - shape.window + 1) : 0;
    std::vector<double> y(shape.head_dim);
    double sum = 0;
    for (int32_t key = first; key <= pos; ++key) {
      const int64_t at =
          (static_cast<int64_t>(key) * shape.num_kv_heads + kv_head) * shape.head_dim;
      double score = 0;
      for (int32_t d = 0; d < shape.head_dim; ++d)
        score += static_cast<double>(query[d]) * k[at + d];
      score *= scale();
      if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
      const double weight = std::exp(score);
      sum += weight;
      for (int32_t d = 0; d < shape.head_dim; ++d) y[d] += weight * v[at + d];
    }
    for (double& value : y) value /= sum;
    return y;
  }

  Shape shape;
  int32_t length, page_tokens;
  std::vector<float> q, k, v;
  PagedLayer layer;
  std::vector<std::byte> pages;
  std::vector<int32_t> block_table;
};

double largest_error(const Sequence& s, const std::vector<float>& y, int32_t begin) {
  double largest = 0;
  const int64_t row = static_cast<int64_t>(s.shape.num_heads) * s.shape.head_dim;
  for (size_t i = 0; i < y.size(); i += s.shape.head_dim) {
    const int32_t pos = begin + static_cast<int32_t>(i / row);
    const std::vector<double> want =
        s.reference(pos, static_cast<int32_t>(i % row / s.shape.head_dim));
    for (int32_t d = 0; d < s.shape.head_dim; ++d) {
      // Written so that NaN fails too.
      const double error = std::fabs(y[i + d] - want[d]);
      if (!(error <= largest)) largest = error;
    }
  }
  return largest;
}

TEST_CASE("attention agrees with plain loops: head sizes, groups, dtypes, windows, caps") {
  std::mt19937 random(kSeed);
  std::vector<Shape> shapes;
  for (int32_t dim : {16, 24, 64, 80, 128, 256}) shapes.push_back({.head_dim = dim});
  for (Dtype dtype : {Dtype::kF16, Dtype::kBF16}) {
    shapes.push_back({.head_dim = 64, .dtype = dtype});
    shapes.push_back({.head_dim = 24, .dtype = dtype});
  }
  shapes.push_back({.num_heads = 9, .num_kv_heads = 3});
  shapes.push_back({.num_heads = 4, .num_kv_heads = 4, .head_dim = 32});
  shapes.push_back({.num_heads = 64, .num_kv_heads = 1, .head_dim = 16});
  for (int32_t window : {1, 5, 64, 100}) shapes.push_back({.head_dim = 32, .window = window});
  shapes.push_back({.head_dim = 32, .soft_cap = 5});
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto backend = make_cpu_backend(2, isa.c_str());
    for (const Shape& shape : shapes) {
      for (int32_t page_tokens : {16, 64}) {
        CAPTURE(isa);
        CAPTURE(shape.head_dim);
        CAPTURE(shape.window);
        CAPTURE(page_tokens);
        const Sequence s(random, shape, 150, page_tokens);
        CHECK_LT(largest_error(s, s.run(*backend, 0, 150), 0), 3e-5);
        CHECK_LT(largest_error(s, s.run(*backend, 149, 150), 149), 3e-5);
      }
    }
  }
}

TEST_CASE(
    "a token's attention has the same bits for every chunking, page size and number of threads") {
  std::mt19937 random(kSeed + 1);
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto one = make_cpu_backend(1, isa.c_str());
    const auto three = make_cpu_backend(3, isa.c_str());
    for (const Shape& shape : {Shape{.head_dim = 80}, Shape{.head_dim = 32, .window = 70}}) {
      CAPTURE(isa);
      CAPTURE(shape.window);
      Sequence s(random, shape, 200, 16);
      const std::vector<float> want = s.run(*three, 0, 200);
      const int64_t row = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
      s.page_tokens = 64;
      s.block_table.clear();
      s.write_pages();
      for (int32_t chunk : {1, 7, 64, 150}) {
        for (int32_t begin = 0; begin < s.length; begin += chunk) {
          const int32_t end = std::min(s.length, begin + chunk);
          const std::vector<float> y = s.run(*one, begin, end);
          REQUIRE_EQ(std::memcmp(y.data(), want.data() + begin * row, y.size() * sizeof(float)), 0);
        }
      }
    }
  }
}

TEST_CASE("a ragged batch is its sequences") {
  std::mt19937 random(kSeed + 2);
  const Shape shape = {.head_dim = 32};
  const Sequence a(random, shape, 90, 16), b(random, shape, 40, 16);
  const int64_t row = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto backend = make_cpu_backend(2, isa.c_str());
    // One pool of pages: b's pages lie behind a's.
    std::vector<std::byte> pages = a.pages;
    pages.insert(pages.end(), b.pages.begin(), b.pages.end());
    std::vector<int32_t> b_table = b.block_table;
    for (int32_t& page : b_table) page += static_cast<int32_t>(a.block_table.size());
    PagedLayer layer = a.layer;
    layer.base = pages.data();
    // a decodes its last token, b runs a chunk; q rows lie in a wider buffer.
    const int64_t stride = row + 13;
    std::vector<float> q(31 * stride), y(31 * row, NAN);
    std::memcpy(q.data(), a.q.data() + 89 * row, row * sizeof(float));
    for (int32_t t = 0; t < 30; ++t) {
      std::memcpy(q.data() + (t + 1) * stride, b.q.data() + (t + 10) * row, row * sizeof(float));
    }
    const AttentionSequence sequences[] = {{0, 1, 89, a.block_table.data()},
                                           {1, 30, 10, b_table.data()}};
    backend->attention({.q = q.data(),
                        .y = y.data(),
                        .q_stride = stride,
                        .batch = {.sequences = sequences, .num_sequences = 2},
                        .kv = layer,
                        .num_heads = shape.num_heads,
                        .scale = a.scale()});
    std::vector<float> want = a.run(*backend, 89, 90);
    const std::vector<float> rest = b.run(*backend, 10, 40);
    want.insert(want.end(), rest.begin(), rest.end());
    CHECK_EQ(std::memcmp(y.data(), want.data(), want.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace baton
