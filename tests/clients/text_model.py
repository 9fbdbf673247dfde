"""A golden model that speaks text: its weights beside a byte-level tokeniser of as many tokens as it has rows, and a chat template.

Every UTF-8 byte is a token, some letters and characters of several bytes are tokens of their own; so random weights write text whose
characters end anywhere, which is what tests of text want. The folder is a Hugging Face tokeniser too, for clients that load one.
"""

import json
import pathlib

SPECIAL = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"a"), (b"i", b"n"), (b"\xc3", b"\xa9"), (b"\xf0", b"\x9f"), (b"\xf0\x9f", b"\x99"),
          (b"\xf0\x9f\x99", b"\x82")]
NOT_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}<|assistant|>{% else %}<|user|>{% endif %}"
    "{{ message['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_names():
    """Byte -> the character that stands for it in byte-level vocabularies."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(0x100) if byte not in names)
    return names | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def tokenizer_json():
    names = byte_names()
    spelled = lambda piece: "".join(names[byte] for byte in piece)  # noqa: E731
    pieces = [bytes([byte]) for byte in range(0x100) if byte not in NOT_IN_UTF8] + [a + b for a, b in MERGES]
    vocab = {token: i for i, token in enumerate(SPECIAL + [spelled(piece) for piece in pieces])}
    assert len(vocab) == 256, "the golden models have 256 rows"
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, token in enumerate(SPECIAL)]
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = lambda name, type_id: {"Sequence": {"id": name, "type_id": type_id}}  # noqa: E731
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "TemplateProcessing", "single": [bos, text("A", 0)], "pair": [bos, text("A", 0), text("B", 1)],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
                  "merges": [f"{spelled(a)} {spelled(b)}" for a, b in MERGES]},
    }


def make_text_model(golden, folder):
    """Writes the model into `folder` (weights by symbolic link) and returns its path."""
    folder = pathlib.Path(folder)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).symlink_to(pathlib.Path(golden).resolve() / name)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
              "model_max_length": 4096, "clean_up_tokenization_spaces": False, "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
