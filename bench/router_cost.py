#!/usr/bin/env python3
"""What the router adds: CPU microseconds a request and a token of `baton-router`, and TTFT through it beside the engine's own prefill.

  build/venv/bin/python bench/router_cost.py      (after scripts/test or scripts/python-env; builds nothing)
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from cluster import BIN, GOLDEN, Cluster  # noqa: E402


def cpu_us(process):
    fields = pathlib.Path(f"/proc/{process.popen.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def load(cluster, requests, tokens):
    argv = [BIN / "baton", "bench", "--url", cluster.url, "--requests", requests, "--concurrency", 16, "--prompt-lengths", "fixed:32",
            "--output-lengths", f"fixed:{tokens}", "--token-id-min", 3, "--token-id-max", 250, "--quiet"]
    begin = cpu_us(cluster.routers[0])
    subprocess.run([str(a) for a in argv], check=True, capture_output=True)
    return cpu_us(cluster.routers[0]) - begin


def main():
    with Cluster(GOLDEN / "llama", worker_args=["--kv.pool-mib", "64"]) as cluster:
        load(cluster, 100, 8)  # warm
        short = load(cluster, 3000, 1) / 3000
        long = load(cluster, 300, 400) / 300
        print(f"router CPU: {short:.0f} us a streamed request of one token, {(long - short) / 399:.1f} us a further token (16 streams)")
        prompt = [3 + i % 240 for i in range(8)]
        times = []
        for _ in range(300):
            begin = time.perf_counter()
            cluster.complete(prompt, max_tokens=1, temperature=0)
            times.append((time.perf_counter() - begin) * 1e6)
        print(f"request through router and worker, one token, golden model, idle: {statistics.median(times):.0f} us (median, client included)")


if __name__ == "__main__":
    main()
