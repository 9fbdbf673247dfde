#!/usr/bin/env python3
"""Prefill and decode tokens/s of one GGUF file, Baton beside llama.cpp, alternating in one run: same file, threads and lengths.

  python3 -m venv V && V/bin/pip install llama-cpp-python && V/bin/python bench/compare_llama_cpp.py [--model F] [--threads 2]

Prints each round, then the medians and their ratio (above 1: Baton is faster).
"""

import argparse
import pathlib
import platform
import random
import re
import statistics
import subprocess
import time

import llama_cpp

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run_baton(options, prompt):
    argv = [ROOT / "build/release/bin/baton", "generate", "--model", options.model, "--token-ids", ",".join(map(str, prompt)),
            "--max-tokens", options.decode + 1, "--threads", options.threads, "--ignore-eos", "--print-ids"]
    text = subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True).stderr
    prefill, decode = re.findall(r"([\d.]+) tokens/s", text)[:2]
    return float(prefill), float(decode)


def run_llama(options, prompt):
    model = llama_cpp.Llama(options.model, n_ctx=len(prompt) + options.decode + 8, n_threads=options.threads,
                            n_threads_batch=options.threads, n_batch=512, verbose=False)
    begin = time.perf_counter()
    model.eval(prompt)
    prefilled = time.perf_counter()
    token = model.sample(temp=0.0)
    for _ in range(options.decode):
        model.eval([token])
        token = model.sample(temp=0.0)
    end = time.perf_counter()
    return len(prompt) / (prefilled - begin), options.decode / (end - prefilled)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.model = options.model or subprocess.run([ROOT / "scripts/fetch-default-model"], check=True, capture_output=True,
                                                    text=True).stdout.strip()
    rng = random.Random(1)
    prompt = [rng.randrange(1000, 40000) for _ in range(options.prompt)]
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty=+"], capture_output=True, text=True).stdout.strip()
    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, commit {commit}, llama-cpp-python {llama_cpp.__version__}")
    print(f"{options.model}: prompt {options.prompt}, decode {options.decode}")
    results = {"baton": [], "llama.cpp": []}
    for round_number in range(options.rounds):
        order = [("baton", run_baton), ("llama.cpp", run_llama)]
        for name, run in order if round_number % 2 == 0 else reversed(order):
            prefill, decode = run(options, prompt)
            results[name].append((prefill, decode))
            print(f"  {name:10} prefill {prefill:8.1f} tokens/s   decode {decode:7.1f} tokens/s", flush=True)
    median = {name: [statistics.median(values) for values in zip(*runs)] for name, runs in results.items()}
    for name, (prefill, decode) in median.items():
        print(f"{name:10} prefill {prefill:8.1f} tokens/s   decode {decode:7.1f} tokens/s   (medians)")
    print("ratio      prefill %8.2f            decode %7.2f" % tuple(b / l for b, l in zip(median["baton"], median["llama.cpp"])))


if __name__ == "__main__":
    main()
