"""Tokenisers in the manner of the known families, made with `tokenizers` itself: name -> Tokenizer."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER, _SUFFIX = (
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
)
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIX}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace(_SUFFIX, "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def with_bytes(*steps, prefix=False, gpt2=False):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=gpt2)])


def train(corpus, pre_tokenizer, normalizer=None, vocab_size=3000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def edited(tokenizer, edit):
    """The tokenizer after `edit` has changed its JSON."""
    content = json.loads(tokenizer.to_str())
    edit(content)
    return Tokenizer.from_str(json.dumps(content))


def special(*contents):
    return [AddedToken(c, special=True, normalized=False) for c in contents]


def bos_template(tokenizer, bos, eos=None):
    text = f"{bos} $A {eos}" if eos else f"{bos} $A"
    tokens = [(t, tokenizer.token_to_id(t)) for t in (bos, eos) if t]
    return processors.TemplateProcessing(single=text, pair=None, special_tokens=tokens)


def llama3(corpus):
    tokenizer = train(corpus, with_bytes(split(LLAMA3)))

    def drop_merges(content):  # so that ignore_merges matters
        content["model"]["ignore_merges"] = True
        content["model"]["merges"] = [m for i, m in enumerate(content["model"]["merges"]) if i % 7]

    tokenizer = edited(tokenizer, drop_merges)
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), bos_template(tokenizer, "<|begin_of_text|>")]
    )
    return tokenizer


def qwen2(corpus, pattern=QWEN2):
    tokenizer = train(corpus, with_bytes(split(pattern)), normalizers.NFC())
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("cafe\u0301tok", normalized=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def flags(corpus):
    tokenizer = train(corpus, with_bytes(gpt2=True), normalizers.Sequence([normalizers.NFC()]), 1000)
    tokenizer.add_special_tokens(
        special("<|im_end|>", "<|endoftext|>")
        + [
            AddedToken("<mask>", special=True, single_word=True, normalized=False),
            AddedToken("<strip>", special=True, lstrip=True, rstrip=True, normalized=False),
            AddedToken("<left>", special=True, lstrip=True, normalized=True),
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken("yesterday", single_word=True),
            AddedToken("<right>", rstrip=True, normalized=False),
            AddedToken("\n\n", normalized=False),
            AddedToken("\n\n\n\n", normalized=False),
            AddedToken("  "),
            AddedToken("caf\u00e9tok"),
            AddedToken("na\u00efve x"),
        ]
    )
    tokenizer.post_processor = bos_template(tokenizer, "<|endoftext|>", "<|im_end|>")
    return tokenizer


def unknowns(corpus, **model):
    """A vocabulary without some bytes."""
    tokenizer = train(corpus, with_bytes(gpt2=True), vocab_size=600)

    def drop_bytes(content):
        vocab = content["model"]["vocab"]
        gone = set("zq\u00c4\u00e4\u0142\u0120\u0122")  # letters, bytes of UTF-8, the blank
        kept = [t for t in sorted(vocab, key=vocab.get) if not gone & set(t)]
        kept += ["<unk>", "<0x7A>", "<0xC4>", "<0xA0>"]  # z and the blank fall back to bytes
        content["model"]["vocab"] = {t: i for i, t in enumerate(kept)}
        as_pair = lambda m: m if isinstance(m, list) else m.split(" ")
        merges = map(as_pair, content["model"]["merges"])
        content["model"]["merges"] = [m for m in merges if "".join(m) in content["model"]["vocab"]]
        content["model"].update(model)

    return edited(tokenizer, drop_bytes)


def shuffled_merges(corpus):
    """Merges in an order that training never gives, some twice."""

    def shuffle(content):
        merges = content["model"]["merges"]
        content["model"]["merges"] = merges[::3] + merges[1::3][::-1] + merges[2::3] + merges[::5]

    return edited(train(corpus, with_bytes(gpt2=True)), shuffle)


def simple(corpus, pre_tokenizer):
    tokenizer = train(corpus, pre_tokenizer, vocab_size=1500)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_end|>"))
    return tokenizer


CODE_POINT_CONTEXT = "a{0}b {0}1{0}. \n{0}{0}"


def revealing(pre_tokenizer, normalizer=None):
    """A vocabulary whose merges join each byte with each neighbour in CODE_POINT_CONTEXT, so that the ids show every split."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(n, c) for n in "a\u01201.\u010a" for c in alphabet] + [
        (c, n) for n in "b\u01201.\u010a" for c in alphabet
    ]
    merges += [(a, b) for a in alphabet for b in alphabet]
    tokens = dict.fromkeys(alphabet + ["".join(merge) for merge in merges])
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, list(dict.fromkeys(merges))))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def revealing_configs():
    yield "gpt2", revealing(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    yield "llama3", revealing(with_bytes(split(LLAMA3)))
    yield "qwen2", revealing(with_bytes(split(QWEN2)), normalizers.NFC())
    yield "qwen35", revealing(with_bytes(split(QWEN35)), normalizers.NFC())
    yield "o200k", revealing(with_bytes(split(O200K)))
    yield "deepseek", revealing(with_bytes(*map(split, DEEPSEEK)))
    yield "smollm", revealing(with_bytes(pre_tokenizers.Digits(individual_digits=True), gpt2=True))
    yield "punctuation", revealing(with_bytes(pre_tokenizers.Punctuation("isolated")))
    yield "whitespace", revealing(with_bytes(pre_tokenizers.Whitespace()))
    yield "word-class", revealing(with_bytes(split(r"\w+|\s+")))
    yield "digit-class", revealing(with_bytes(split(r"\d+|\S")))


def all_configs(corpus):
    digits = pre_tokenizers.Digits
    yield "gpt2", simple(corpus, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    yield "gpt2-prefix-space", simple(corpus, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True))
    yield "split-prefix-space", simple(corpus, with_bytes(split(r"[,.]"), prefix=True))
    yield "llama3", llama3(corpus)
    yield "qwen2", qwen2(corpus)
    yield "qwen35", qwen2(corpus, QWEN35)
    yield "o200k", simple(corpus, with_bytes(split(O200K)))
    yield "tekken", simple(corpus, with_bytes(split(TEKKEN)))
    yield "deepseek", simple(corpus, with_bytes(*map(split, DEEPSEEK)))
    yield "smollm", simple(corpus, with_bytes(digits(individual_digits=True), gpt2=True))
    yield "digit-runs", simple(corpus, with_bytes(digits(individual_digits=False), gpt2=True))
    yield "flags", flags(corpus)
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            name = f"split-{behavior}{'-inverted' if invert else ''}"
            yield name, simple(corpus, with_bytes(split(r"[\s\-.]|\d", behavior, invert)))
    yield "split-string", simple(corpus, with_bytes(pre_tokenizers.Split(" .", "merged_with_next")))
    yield "word-class", simple(corpus, with_bytes(split(r"\w+|\W\S?"), split(r"[^\S\n]+", "contiguous")))
    yield "punctuation", simple(corpus, with_bytes(pre_tokenizers.Punctuation("contiguous")))
    yield "whitespace", simple(corpus, with_bytes(pre_tokenizers.Whitespace()))
    yield "whitespace-split", simple(corpus, with_bytes(pre_tokenizers.WhitespaceSplit()))
    yield "unknown-dropped", unknowns(corpus)
    yield "unknown-token", unknowns(corpus, unk_token="<unk>")
    yield "unknown-fused", unknowns(corpus, unk_token="<unk>", fuse_unk=True)
    yield "byte-fallback", unknowns(corpus, unk_token="<unk>", byte_fallback=True)
    yield "shuffled-merges", shuffled_merges(corpus)
