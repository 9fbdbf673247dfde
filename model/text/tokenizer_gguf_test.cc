#include "base/status.h"
#include "model/text/gguf_pre_tokenizers.h"
#include "model/text/tokenizer.h"
#include "model/text/tokenizer_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using testing::small_vocab;

using Ids = std::vector<int32_t>;

constexpr int32_t kHello = 260;

std::string refusal(const GgufVocab& vocab) {
  try {
    make_gguf_tokenizer(vocab);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a vocabulary is used as its metadata says") {
  GgufVocab vocab = small_vocab({"<|im_start|>", "<|im_end|>"});
  vocab.tokens.push_back("<tool>");
  vocab.token_types.push_back(4);
  vocab.bos_id = 261;
  vocab.eos_id = 262;
  auto tokenizer = make_gguf_tokenizer(vocab);
  CHECK_EQ(tokenizer->encode(" hello<|im_end|><tool>", {}).value(), Ids{kHello, 262, 263});
  CHECK(tokenizer->is_special(262));
  CHECK_FALSE(tokenizer->is_special(263));
  vocab.add_bos = true;
  vocab.add_eos = true;
  tokenizer = make_gguf_tokenizer(vocab);
  CHECK_EQ(tokenizer->encode(" hello", {}).value(), Ids{261, kHello, 262});
  CHECK_EQ(tokenizer->bos_id(), 261);
}

TEST_CASE("where the file does not say, BOS is as the family has it") {
  GgufVocab vocab = small_vocab({"<|begin_of_text|>"});
  vocab.bos_id = 261;
  CHECK_EQ(make_gguf_tokenizer(vocab)->encode(" hello", {}).value(), Ids{kHello});
  vocab.pre = "llama-bpe";
  CHECK_EQ(make_gguf_tokenizer(vocab)->encode(" hello", {}).value(), Ids{261, kHello});
  vocab.add_bos = false;
  CHECK_EQ(make_gguf_tokenizer(vocab)->encode(" hello", {}).value(), Ids{kHello});
}

TEST_CASE("tokens that end a generation are also known by their text") {
  GgufVocab vocab = small_vocab({"<|endoftext|>", "<|im_end|>", "<|end|>", "<eos>"});
  vocab.eos_id = 262;
  CHECK_EQ(make_gguf_tokenizer(vocab)->eos_ids(), Ids{262, 263, 261, 264});
  vocab.token_types[264] = 1;  // ordinary text that only looks like one
  CHECK_EQ(make_gguf_tokenizer(vocab)->eos_ids(), Ids{262, 263, 261});
  // Harmony: <|end|> ends a message only.
  vocab = small_vocab({"<|end|>", "<|return|>", "<|call|>"});
  CHECK_EQ(make_gguf_tokenizer(vocab)->eos_ids(), Ids{262, 263});
}

TEST_CASE("every pre-tokeniser in the table compiles and covers the text") {
  const std::string text =
      "I'LL pay \u20ac12345 f\u00fcr \u65e5\u672c\u8a9e\u3067  \U0001f600\r\n\n ok/\n";
  for (const GgufPreTokenizer& entry : gguf_pre_tokenizers()) {
    for (const std::string_view name : entry.names) {
      GgufVocab vocab = small_vocab({});
      vocab.pre = name;
      const auto tokenizer = make_gguf_tokenizer(vocab);
      CHECK_EQ(decode(*tokenizer, tokenizer->encode(text, {}).value(), false), text);
    }
  }
}

TEST_CASE("malformed metadata is refused with its key") {
  const auto check = [](auto change, const std::string& want) {
    GgufVocab vocab = small_vocab({"<s>"});
    change(vocab);
    const std::string message = refusal(vocab);
    CAPTURE(message);
    CHECK_NE(message.find(want), std::string::npos);
  };
  check([](GgufVocab& v) { v.model = "llama"; },
        "tokenizer.ggml.model: got \"llama\", want \"gpt2\"");
  check([](GgufVocab& v) { v.pre = "new-model"; },
        "tokenizer.ggml.pre: got \"new-model\", want one of gpt-2, ");
  check([](GgufVocab& v) { v.pre = ""; }, "tokenizer.ggml.pre: got \"\"");
  check([](GgufVocab& v) { v.tokens.clear(); }, "tokenizer.ggml.tokens: got none");
  check([](GgufVocab& v) { v.token_types.pop_back(); },
        "tokenizer.ggml.token_type: got 261 entries, want 262");
  check([](GgufVocab& v) { v.token_types[5] = 9; },
        "token_type[5]: got 9, want a type from 1 to 6");
  check([](GgufVocab& v) { v.tokens[7] = v.tokens[3]; }, "tokens[7]: got ");
  check([](GgufVocab& v) { v.eos_id = 262; }, "eos_token_id: got 262, want an id below the number");
  check([](GgufVocab& v) { v.bos_id = -2; }, "bos_token_id: got -2");
  check([](GgufVocab& v) { v.merges[0] = "ab"; }, "merges[0]: got \"ab\", want two tokens");
  check([](GgufVocab& v) { v.merges[0] = ""; }, "merges[0]: got \"\"");
  check([](GgufVocab& v) { v.merges[1] = "e zz"; }, "\"zz\" is not in the vocabulary");
}

}  // namespace
}  // namespace baton
