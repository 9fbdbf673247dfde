#!/usr/bin/env python3
"""Compares Baton's tokeniser with PyPI `tokenizers`, token for token and byte for byte.

    python3 tests/text/tokenizer_equivalence.py --driver build/release/bin/tokenizer-driver

Also runs every code point through the pre-tokenisers. Those that PCRE2's Unicode tables do not know yet are listed
and must be newer than Unicode 14. Exit status 1 on any difference.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import tokenizer_configs
import tokenizer_strings

# All planes that have characters, and a few of the empty and private ones.
CODE_POINTS = [*range(0x33500), 0x40000, 0xDFFFF, *range(0xE0000, 0xE0200), 0xF0000, 0xFFFFD, 0x100000, 0x10FFFF]
SHOWN_DIFFERENCES = 5


def drive(driver, arguments, strings):
    """One answer of the driver a string."""
    sent = b"".join(struct.pack("<I", len(s)) + s for s in (text.encode() for text in strings))
    done = subprocess.run([driver, *arguments], input=sent, stdout=subprocess.PIPE, timeout=600)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    if done.returncode != 0 or len(answers) != len(strings):
        sys.exit(f"driver {arguments}: status {done.returncode}, {len(answers)} answers, last {answers[-1:]}")
    return answers


def expected(tokenizer, text):
    tokenizer.encode_special_tokens = False
    ids = tokenizer.encode(text).ids
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = True
    literal = tokenizer.encode(text, add_special_tokens=False).ids
    kept = tokenizer.decode(ids, skip_special_tokens=False)
    return {
        "ids": ids,
        "plain": plain,
        "literal": literal,
        "text": tokenizer.decode(ids, skip_special_tokens=True),
        "kept": kept,
        "pieces": kept,
    }


def differences(name, tokenizer, driver, arguments, strings):
    different = []
    for text, got in zip(strings, drive(driver, arguments, strings)):
        want = expected(tokenizer, text)
        keys = [key for key in want if got.get(key) != want[key]]
        if keys:
            different.append(text)
        if keys and len(different) <= SHOWN_DIFFERENCES:
            print(f"  {name}: {text[:200]!r}\n    {keys[0]}: got {got.get(keys[0], got)}\n    want {want[keys[0]]}")
    return different


def is_newer_than_unicode_14(code_point):
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"unicodedata: got Unicode {unicodedata.unidata_version}, want 14.0.0 (Python 3.11)")
    return unicodedata.category(chr(code_point)) == "Cn"


def different_code_points(tokenizer, driver, arguments):
    """The code points that are split in another way, found in chunks and then one by one."""
    context = tokenizer_configs.CODE_POINT_CONTEXT.format
    all_points = [c for c in CODE_POINTS if not 0xD800 <= c < 0xE000]
    for size in (64, 1):
        chunks = [all_points[i : i + size] for i in range(0, len(all_points), size)]
        texts = ["".join(context(chr(c)) for c in chunk) for chunk in chunks]
        answers = drive(driver, [*arguments, "--ids"], texts)
        tokenizer.encode_special_tokens = False
        wants = [tokenizer.encode(text).ids for text in texts]
        all_points = [c for chunk, got, want in zip(chunks, answers, wants) if got.get("ids") != want for c in chunk]
    return all_points


def as_ranges(code_points):
    ranges = []
    for c in code_points:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in ranges)


def read_gguf(path):
    """The vocabulary as the driver takes it, and the same as a `tokenizers` Tokenizer."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    read = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    dump = {
        "model": read("model"),
        "pre": read("pre"),
        "tokens": read("tokens"),
        "token_types": [int(t) for t in read("token_type")],
        "merges": read("merges"),
        "bos_id": int(read("bos_token_id")),
        "eos_id": int(read("eos_token_id")),
        "add_bos": False,
    }
    if dump["pre"] != "smollm":
        sys.exit(f"{path}: tokenizer.ggml.pre: got {dump['pre']!r}, want 'smollm'")
    vocab = {token: i for i, token in enumerate(dump["tokens"])}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in dump["merges"]]))
    tokenizer.pre_tokenizer = tokenizer_configs.with_bytes(pre_tokenizers.Digits(individual_digits=True), gpt2=True)
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(dump["tokens"], dump["token_types"]) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    return dump, tokenizer


def default_model():
    script = Path(__file__).parents[2] / "scripts" / "fetch-default-model"
    return subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


class Comparison:
    """Runs the comparisons and counts."""

    def __init__(self, driver, strings):
        self.driver = driver
        self.strings = strings
        self.passed = 0
        self.failed = 0

    def compare_strings(self, name, tokenizer, arguments):
        start = time.monotonic()
        different = len(differences(name, tokenizer, self.driver, arguments, self.strings))
        self.failed += different
        self.passed += len(self.strings) - different
        seconds = time.monotonic() - start
        print(f"{name}: {len(self.strings)} strings, {different} different, {seconds:.1f} s", flush=True)

    def compare_code_points(self, name, tokenizer, arguments):
        points = different_code_points(tokenizer, self.driver, arguments)
        old = [c for c in points if not is_newer_than_unicode_14(c)]
        self.failed += bool(old)
        self.passed += not old
        print(
            f"{name}: every code point, {len(points)} newer than Unicode 14 different: {as_ranges(points)}", flush=True
        )
        if old:
            print(f"  of these not newer: {as_ranges(old)}")


def with_folder(tokenizer, compare, name):
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(str(Path(folder) / "tokenizer.json"))
        compare(name, tokenizer, [folder])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--gguf", help="a GGUF file with SmolLM's vocabulary; else the default model is fetched")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000, help="random strings for each vocabulary")
    parser.add_argument("--only", help="the one vocabulary to compare")
    options = parser.parse_args()
    wanted = lambda name: options.only in (None, name)
    print(f"seed {options.seed}")
    comparison = Comparison(options.driver, tokenizer_strings.strings(options.seed, options.count))
    corpus = tokenizer_strings.corpus(options.seed + 1)
    for name, tokenizer in tokenizer_configs.all_configs(corpus):
        if wanted(name):
            with_folder(tokenizer, comparison.compare_strings, name)
    for name, tokenizer in tokenizer_configs.revealing_configs():
        if wanted(name):
            with_folder(tokenizer, comparison.compare_code_points, name)
    if wanted("gguf"):
        dump, tokenizer = read_gguf(options.gguf or default_model())
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(dump, file)
            file.flush()
            comparison.compare_strings("gguf", tokenizer, ["--gguf", file.name])
    print(f"{comparison.passed} passed, {comparison.failed} failed")
    sys.exit(1 if comparison.failed else 0)


if __name__ == "__main__":
    main()
