#!/usr/bin/env python3
"""Open-loop load (Poisson, `baton bench`) on the same two GPUs: (a) one prefill and one decode worker, local prefill allowed; (b) two workers
of role both. TTFT, TPOT and goodput over a sweep of rates; in (a) also what the decode worker's steps took with and without a prefill chunk.

  build/venv/bin/python bench/load_bench.py                       two GPUs: the shape of Llama-3.1-8B with random weights
  build/venv/bin/python bench/load_bench.py --quick               on CPU: a golden model, a few seconds
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from cluster import BIN, GOLDEN, ROOT  # noqa: E402
from handoff_bench import BenchCluster, LogTail, attempt, percentile, print_trouble  # noqa: E402

SLO_TTFT_MS, SLO_TPOT_MS = 500, 15
WORKLOADS = {"2k/256": ["--prompt-lengths", "fixed:2048", "--output-lengths", "fixed:256"],
             "12k/343": ["--prompt-lengths", "lognormal:12035,1.0", "--output-lengths", "lognormal:343,1.0", "--prompt-max", 32768,
                         "--output-max", 2048],
             # All but some 60 tokens of a prompt are at the decode worker after the first: prefilled there, beside its decodes.
             "shared/256": ["--prompt-lengths", "fixed:2048", "--output-lengths", "fixed:256", "--shared-prefix", 0.97],
             "quick": ["--prompt-lengths", "uniform:20,200", "--output-lengths", "fixed:16"]}


def start(layout, options):
    common = ["--device", options.devices[0], "--log-debug", "true"]
    if options.quick:
        common += ["--kv.pool-mib", 64, "--context-len", 2048]
    else:
        common += ["--load-format", "dummy", "--kv.slab-mib", 1024, "--context-len", 40960, "--kvtransfer.transports", "mapped"]
    counts = {"prefill": 1, "decode": 1} if layout == "a" else {"prefill": 0, "decode": 0, "both": 2}
    cluster = BenchCluster(options.model, worker_args=common, **counts)
    for device, worker in zip(options.devices, cluster.workers.values(), strict=True):
        worker.argv[worker.argv.index("--device") + 1] = device
    return cluster


def print_load(cluster, layout, workload, rate, seed, options):
    count = max(4, int(rate * options.seconds))
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        ids = (3, 250) if options.quick else (1000, 100000)
        argv = [BIN / "baton", "bench", "--url", cluster.url, "--rate", rate, "--requests", count, *WORKLOADS[workload], "--seed", seed,
                "--token-id-min", ids[0], "--token-id-max", ids[1], "--slo-ttft-ms", SLO_TTFT_MS, "--slo-tpot-ms", SLO_TPOT_MS, "--quiet", "--json", report.name]
        done = subprocess.run([str(a) for a in argv], check=False, capture_output=True, text=True, timeout=options.seconds * 4 + 30)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-500:])
        numbers = json.load(report)
    ttft, tpot = (" / ".join(f"{numbers[key][q]:.1f}" for q in ("p50", "p95", "p99")) for key in ("ttft_ms", "tpot_ms"))
    print(f"({layout}) {workload:8} {rate:5.1f}/s: {numbers['completed']} of {count}, TTFT ms p50/95/99 {ttft}, TPOT ms {tpot}, "
          f"goodput {numbers['goodput_rps']:.2f}/s", flush=True)


def print_steps(what, steps):
    """Steps without a chunk are held against the median of those of the same batch and a context within 5 % (all its choices' together)."""
    alone, chunked, total = {}, [], 0
    for fields in steps:
        decodes, context, prefill, us = (int(fields[key]) for key in ("decodes", "context_tokens", "prefill_tokens", "compute_us"))
        total += decodes > 0
        if decodes > 0 and prefill == 0:
            alone.setdefault((decodes, int(math.log(context) / math.log(1.1))), []).append(us)
        elif decodes > 0:
            chunked.append(us)
    ratios = [us / statistics.median(alike) for alike in alone.values() if len(alike) >= 20 for us in alike]
    if not ratios:
        return
    within = sum(us <= 1e3 * SLO_TPOT_MS for us in chunked)
    print(f"    {what}: decode steps without a chunk: {len(ratios)} of {total - len(chunked)} have 20 alike, p99 {percentile(ratios, 0.99):.3f} x "
          f"their median; with one: {100 * len(chunked) / max(total, 1):.1f} % of all, ms p50 {percentile(chunked or [0], 0.5) / 1e3:.1f}, "
          f"p99 {percentile(chunked or [0], 0.99) / 1e3:.1f}, {within} of {len(chunked)} within {SLO_TPOT_MS} ms", flush=True)


def run(layout, options):
    begin, good = time.monotonic(), True
    with start(layout, options) as cluster:
        print(f"({layout}) {', '.join(cluster.workers)} ready in {time.monotonic() - begin:.0f} s", flush=True)
        log = LogTail(cluster.workers["decode-0"].log) if layout == "a" else None
        seed, all_steps = options.seed, []
        for part in options.sweep.split():
            workload, rates = part.split(":")
            for rate in rates.split(","):
                seed += 1  # no prompt comes twice: its pages would be there still
                good = attempt(part, print_load, cluster, layout, workload, float(rate), seed, options) and good
                if log is not None:
                    steps = [fields for event, _, fields in log.read() if event == "step"]
                    all_steps += steps
                    print_steps(part, steps)
        print_steps("all", all_steps)
        if not good:
            print_trouble(cluster)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a golden model on CPU, a few seconds")
    parser.add_argument("--model", default=str(ROOT / "bench/shapes/llama-3.1-8b"))
    parser.add_argument("--devices", default="cuda:0,cuda:1")
    parser.add_argument("--layouts", default="a,b")
    parser.add_argument("--sweep", default="2k/256:8,14,18 12k/343:1.5,3", help="WORKLOAD:RATE,RATE...")
    parser.add_argument("--seconds", type=float, default=20, help="of arrivals at each rate")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    options = parser.parse_args()
    if options.quick:
        options.model, options.devices, options.sweep, options.seconds = str(GOLDEN / "llama"), "cpu,cpu", "quick:10", 1
    options.devices = options.devices.split(",")
    print(f"{options.model}, seed {options.seed}, {options.seconds:.0f} s of arrivals at each rate", flush=True)
    good = [attempt(f"({layout})", run, layout, options) for layout in options.layouts.split(",")]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
