#!/usr/bin/env python3
"""What the router costs: CPU time and cycles (CPU time x clock) of `baton-router` a request and a further token, with the share of each stage.

  build/venv/bin/python bench/router_cost.py      (after scripts/test or scripts/python-env; builds nothing)

Streamed chats of 64 prompt tokens over a golden model that speaks text, 16 at once; each total is measured without a profiler, as the
difference of answers of 400 tokens and of one; the shares come from a second run under `perf record` (Debian's linux-perf). BATON_BIN names
other binaries.
"""

import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/clients")]
from cluster import BIN, GOLDEN, Cluster, http_get  # noqa: E402
from text_model import make_text_model  # noqa: E402

SHORT, LONG = (3000, 1), (300, 400)  # requests, tokens of each
STREAMS, PROMPT_TOKENS = 16, 64

# A sample belongs to the first of these that its innermost frames name; system calls are told apart by who made them.
STAGES = [
    ("metrics", r"Metric|prometheus|Histogram"),
    ("detokenise, stop strings", r"TextOutput|Detokenizer"),
    ("write the event (SSE, JSON)", r"ResponseWriter|ClientRequest|append_json_string"),
    ("chat template", r"ChatTemplate|[Jj]inja|Evaluator"),
    ("tokenise", r"Tokenizer|Bpe|PreTokenizer|[Rr]egex|pcre2"),
    ("read the request (JSON, fields)", r"parse_json|read_(chat|completion)_request|FieldReader|JsonReader"),
    ("place, relay", r"Dispatcher|Placement|ChoiceRelay|PrefixHistory"),
    ("links: frames, messages", r"[Ll]ink|Frame|decode_message|encode_message|[Mm]sgpack|Outbox"),
    ("HTTP", r"HttpSession|HttpServer|beast|baton::Api|CountedReply"),
]


def cpu_us(process):
    """User and kernel time of all threads."""
    tasks = pathlib.Path(f"/proc/{process.popen.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def load(cluster, requests, tokens):
    argv = [BIN / "baton", "bench", "--url", cluster.url, "--requests", requests, "--concurrency", STREAMS, "--endpoint", "chat",
            "--prompts", "text", "--prompt-lengths", f"fixed:{PROMPT_TOKENS}", "--output-lengths", f"fixed:{tokens}", "--quiet"]
    begin = cpu_us(cluster.routers[0])
    subprocess.run([str(a) for a in argv], check=True, capture_output=True)
    return (cpu_us(cluster.routers[0]) - begin) / requests


def stage_of(frames):
    """frames: innermost first."""
    if call := next((frame for frame in frames if frame.startswith("__x64_sys_")), None):
        if re.search(r"epoll|futex|timerfd", call) or any(frame.startswith("eventfd_write") for frame in frames):
            return "sleep and wake (kernel)"
        return "links: sockets (kernel)" if any("Link" in frame for frame in frames) else "client sockets (kernel)"
    for frame in frames:
        for name, pattern in STAGES:
            if re.search(pattern, frame):
                return name
    return "loop, allocation, other"


def shares(cluster, requests, tokens):
    """Stage -> share of the samples of one load."""
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        perf = subprocess.Popen(["perf", "record", "-q", "-o", data, "-e", "cpu-clock", "-F", "2999", "--call-graph", "dwarf,8192", "-p",
                                 str(cluster.routers[0].popen.pid)], stderr=subprocess.DEVNULL)
        while not pathlib.Path(data).exists():
            time.sleep(0.01)
        load(cluster, requests, tokens)
        perf.send_signal(signal.SIGINT)
        perf.wait()
        text = subprocess.run(["perf", "script", "-i", data, "--no-inline", "-F", "ip,sym"], check=True, capture_output=True, text=True).stdout
    counts = {}
    for sample in text.split("\n\n"):
        frames = [line.split(None, 1)[1] for line in sample.splitlines() if len(line.split(None, 1)) == 2]
        if frames:
            stage = stage_of(frames)
            counts[stage] = counts.get(stage, 0) + 1
    return {stage: count / sum(counts.values()) for stage, count in counts.items()}


def print_stages(cluster, request_us, long_us, mhz):
    short_shares, long_shares = shares(cluster, *SHORT), shares(cluster, *LONG)
    token_us = {stage: (long_us * long_shares.get(stage, 0) - request_us * short_shares.get(stage, 0)) / (LONG[1] - 1)
                for stage in {*short_shares, *long_shares}}
    whole_us = sum(token_us.values())
    print(f"\n{'stage':34} {'us/request':>10} {'share':>6}   {'us/token':>8} {'cycles/token':>12} {'share':>6}")
    for stage in sorted(token_us, key=lambda s: -max(short_shares.get(s, 0), token_us[s] / whole_us)):
        print(f"{stage:34} {request_us * short_shares.get(stage, 0):10.1f} {short_shares.get(stage, 0):6.1%}   "
              f"{token_us[stage]:8.2f} {token_us[stage] * mhz:12.0f} {token_us[stage] / whole_us:6.1%}")


def machine():
    facts = dict(line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return facts["model name"], float(facts["cpu MHz"])


def main():
    name, mhz = machine()
    with tempfile.TemporaryDirectory() as folder, Cluster(make_text_model(GOLDEN / "llama", folder), worker_args=["--kv.pool-mib", "64"]) as cluster:
        print(f"{name}, {os.cpu_count()} CPUs at {mhz:.0f} MHz; {http_get(cluster.url + '/version').strip()}; golden llama, 1 prefill and 1 "
              f"decode worker, {STREAMS} streamed chats at once, {PROMPT_TOKENS} prompt tokens, text threads and all else at defaults")
        load(cluster, 200, 8)  # warm
        runs = [(load(cluster, *SHORT), load(cluster, *LONG)) for _ in range(3)]
        request_us, long_us = (statistics.median(column) for column in zip(*runs))
        token_us = (long_us - request_us) / (LONG[1] - 1)
        print(f"router CPU, medians of {len(runs)}: {request_us:.0f} us = {request_us * mhz:.0f} cycles a streamed request of one token; "
              f"{token_us:.1f} us = {token_us * mhz:.0f} cycles a further token")
        if shutil.which("perf"):
            print_stages(cluster, request_us, long_us, mhz)
        else:
            print("no `perf` here: no shares of stages")


if __name__ == "__main__":
    main()
