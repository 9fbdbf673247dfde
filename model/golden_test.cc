// Logits of seven golden families against Hugging Face transformers, and the equalities that replay
// and handoff rest on.
#include <algorithm>
#include <cstring>

#include "model/golden_model.h"
#include "model/sampler.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("logits equal the reference, whole and in chunks, in pages of 16 and 64") {
  for (const char* family : kGoldenFamilies) {
    const GoldenReference reference = read_golden_reference(family);
    std::vector<float> whole;
    for (const int32_t page_tokens : {16, 64}) {
      LoadedModel model = load_golden(family, golden_options(page_tokens));
      for (const int32_t chunk_tokens : {100, 16, 17}) {
        CAPTURE(family);
        CAPTURE(page_tokens);
        CAPTURE(chunk_tokens);
        const std::vector<float> logits = prefill(model, reference.input_ids, chunk_tokens);
        CHECK(relative_l2(logits, reference.logits) <= 1e-3);
        if (whole.empty()) whole = logits;
        CHECK(same_bits(logits, whole));
      }
    }
  }
}

TEST_CASE("prefill(n) equals prefill(n-1) and a decode step, bit for bit") {
  for (const char* family : kGoldenFamilies) {
    CAPTURE(family);
    const GoldenReference reference = read_golden_reference(family);
    LoadedModel model = load_golden(family, golden_options(16));
    const int32_t vocab = model.facts.vocab_size;
    const std::vector<TokenId>& ids = reference.input_ids;
    const std::vector<float> whole = prefill(model, ids, 100, 0);
    for (const int32_t n : {2, 16, 17, 33, 64, 65, 100}) {
      CAPTURE(n);
      const std::vector<TokenId> head(ids.begin(), ids.begin() + n - 1);
      prefill(model, head, n, 1);
      CHECK(same_bits(execute(model, {make_chunk(model, ids, n - 1, n, 1)}),
                      rows(whole, vocab, n - 1, n)));
    }
    CHECK(same_bits(prefill(model, ids, 1, 2), whole));
  }
}

TEST_CASE("teacher-forced, the likeliest token is the reference's wherever its margin is clear") {
  for (const char* family : kGoldenFamilies) {
    const GoldenReference reference = read_golden_reference(family);
    LoadedModel model = load_golden(family, golden_options(16));
    const int32_t vocab = model.facts.vocab_size;
    std::vector<TokenId> ids = reference.input_ids;
    const size_t prompt = ids.size();
    ids.insert(ids.end(), reference.greedy.begin(), reference.greedy.end());
    const std::vector<float> logits = prefill(model, ids, 64);
    int compared = 0;
    for (size_t i = 0; i < reference.greedy.size(); ++i) {
      if (reference.greedy_margin[i] <= 0.01F) continue;
      CAPTURE(family);
      CAPTURE(i);
      CHECK(arg_max(logits.data() + (prompt + i - 1) * static_cast<size_t>(vocab), vocab) ==
            reference.greedy[i]);
      ++compared;
    }
    CHECK(compared >= 40);
  }
}

TEST_CASE("sequences in one batch equal each alone, bit for bit") {
  for (const char* family : kGoldenFamilies) {
    CAPTURE(family);
    const GoldenReference reference = read_golden_reference(family);
    const std::vector<TokenId>& ids = reference.input_ids;
    LoadedModel alone = load_golden(family, golden_options(16));
    const int32_t vocab = alone.facts.vocab_size;
    const std::vector<float> whole = prefill(alone, ids, 100);

    LoadedModel model = load_golden(family, golden_options(16));
    // Lane 0 is in the middle of its prompt, 1 begins, 2 and 3 decode at different lengths.
    execute(model, {make_chunk(model, ids, 0, 37, 0), make_chunk(model, ids, 0, 80, 2)});
    execute(model, {make_chunk(model, ids, 0, 15, 3)});
    const std::vector<float> mixed =
        execute(model, {make_chunk(model, ids, 37, 90, 0), make_chunk(model, ids, 80, 81, 2),
                        make_chunk(model, ids, 0, 21, 1), make_chunk(model, ids, 15, 16, 3)});
    std::vector<float> want;
    for (const auto& [begin, end] : {std::pair{37, 90}, {80, 81}, {0, 21}, {15, 16}}) {
      const std::vector<float> part = rows(whole, vocab, begin, end);
      want.insert(want.end(), part.begin(), part.end());
    }
    CHECK(same_bits(mixed, want));
  }
}
