#!/usr/bin/env python3
"""What a handoff costs, end to end: a router, a prefill and a decode worker, prompts of token ids, numbers from the workers' own logs.

  build/venv/bin/python bench/handoff_bench.py                    two GPUs: the shape of Llama-3.1-8B with random weights
  build/venv/bin/python bench/handoff_bench.py --quick            on CPU: a golden model, a few seconds

Exposed: from the end of the prompt's last kernel until the decode worker has taken the pages (COMMIT); "acked": until the prefill worker knows.
Both read the clock of one host. Idle, and while the decode worker is at --decode-batch choices. TTFT: at the client, less the prompt's own
steps. Prefill: the steps of a prompt that is not pushed (max_tokens 1; control: every second of them beside the rest), of one that is, and,
between GPUs, of one that is not while other traffic keeps the links awake (awake_links.py). Decode steps: while prompts of 8192 tokens land
(and end with their first token) and while none does.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import re
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from awake_links import AwakeLinks  # noqa: E402
from cluster import GOLDEN, ROOT, Cluster  # noqa: E402

# Parts of the time from the last kernel to COMMIT, and of the TTFT beside the prompt's own steps: before the first of them (to the
# prefill worker, until D has granted, until its step is made up, until the GPU begins it), between them, until the prefill worker's loop
# knows of the last one's end, and from there to the client (the first token is the prefill worker's: COMMIT is not on its way).
EXPOSED_PARTS = ("step_end", "copies", "commit", "acked")
BESIDE_STEPS = ("to_prefill", "grant", "scheduled", "on_gpu", "between", "step_end", "to_client")
FIELD = re.compile(r"(\w+)=(\S+)")
EVENTS = ("step", "handoff_landed", "handoff_committed", "handoff_attached")


class BenchCluster(Cluster):
    def wait_ready(self, timeout_s=180):
        super().wait_ready(timeout_s)


class LogTail:
    """Events of one worker's log, as they come."""

    def __init__(self, path):
        self.file = open(path, errors="replace")
        self.rest = ""

    def read(self):
        self.rest += self.file.read()
        *lines, self.rest = self.rest.split("\n")
        events = []
        for line in lines:
            words = line.split(" ", 3)
            if len(words) == 4 and words[2] in EVENTS:
                seconds = time.mktime(time.strptime(words[0][:19], "%Y-%m-%dT%H:%M:%S")) + float(words[0][19:23])
                events.append((words[2], seconds, dict(FIELD.findall(words[3]))))
        return events


def percentile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def spread(values):
    return f"p50 {percentile(values, 0.5):8.0f}  p99 {percentile(values, 0.99):8.0f}"


class Load:
    def __init__(self, cluster, options):
        self.cluster, self.options = cluster, options
        self.random = random.Random(options.seed)
        self.prefill = LogTail(cluster.workers["prefill-0"].log)
        self.decode = LogTail(cluster.workers["decode-0"].log)
        self.vocab = 250 if options.small else 100000
        self.committed = {}  # request -> when

    def prompt(self, length):
        return [self.random.randrange(3, self.vocab) for _ in range(length)]

    def request(self, length, **fields):
        return json.dumps({"prompt": self.prompt(length), "temperature": 0, "ignore_eos": True, **fields})

    def first_token(self, body, pause_s=0.0):
        """When the request went out and when its first token was here, microseconds of the clock the workers' logs have. A bare socket that
        has been connected before the pause: Python's HTTP client would add a third of a millisecond of its own."""
        request = (f"POST /v1/completions HTTP/1.1\r\nHost: baton\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
        with socket.create_connection(("127.0.0.1", self.cluster.ports[0]), timeout=60) as connection:
            time.sleep(pause_s)
            begin = time.monotonic()
            connection.sendall(request)
            reply = self.read_until(connection, b"data: ", b"")
            end = time.monotonic()
            self.read_until(connection, b"[DONE]", reply)
        return begin * 1e6, end * 1e6

    @staticmethod
    def read_until(connection, what, reply):
        while what not in reply:
            piece = connection.recv(1 << 16)
            reply += piece
            if not piece or not reply.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"got {reply[:200]}")
        return reply

    def one(self, length, pushed):
        """(TTFT, the prompt's own steps, parts of the handoff or None), microseconds."""
        self.prefill.read()
        body = self.request(length, max_tokens=2 if pushed else 1, stream=True)
        # Each begins on a GPU that has been idle for as long: its clock falls with what came before.
        begin_us, end_us = self.first_token(body, self.options.pause_s)
        steps, computed, landed, until = [], 0, None, time.monotonic() + 2
        while time.monotonic() < until and (computed < length or (pushed and landed is None)):
            for event, _, fields in self.prefill.read():
                if event == "step" and int(fields["prefill_tokens"]) > 0:
                    end = int(fields["computed_at_us"])
                    steps.append((end - int(fields["compute_us"]), end))
                    computed += int(fields["prefill_tokens"])
                elif event == "handoff_landed":
                    landed = fields
            time.sleep(0.001)
        if computed < length or (pushed and landed is None):
            raise RuntimeError(f"the log of the prefill worker has {computed} of {length} tokens, landed: {landed}")
        computed_us = sum(end - begin for begin, end in steps)
        return end_us - begin_us, computed_us, self.parts(landed, begin_us, steps, end_us) if pushed else None

    def parts(self, landed, begin_us, steps, end_us):
        """EXPOSED_PARTS and BESIDE_STEPS, microseconds."""
        request = landed["request"]
        parts = {key: int(value) for key, value in landed.items() if key != "request"}
        until = time.monotonic() + 2
        while request not in self.committed:
            if time.monotonic() > until:
                raise RuntimeError(f"no handoff_committed of {request} in the log of the decode worker")
            for event, _, fields in self.decode.read():
                if event == "handoff_committed":
                    self.committed[fields["request"]] = int(fields["at_us"])
            time.sleep(0.001)
        committed_us = self.committed.pop(request)
        at = {key.removesuffix("_at_us"): value for key, value in parts.items() if key.endswith("_at_us")}
        return {"exposed": committed_us - at["computed"], "acked": parts["exposed_us"], "step_end": at["told"] - at["computed"],
                "copies": at["committed"] - at["told"], "commit": committed_us - at["committed"],
                "to_prefill": at["arrived"] - begin_us, "grant": at["granted"] - at["arrived"], "scheduled": at["started"] - at["granted"],
                "on_gpu": steps[0][0] - at["started"],
                "between": sum(next_begin - end for (_, end), (next_begin, _) in zip(steps, steps[1:])), "to_client": end_us - at["told"]}


def print_exposed(load, lengths, repeats, what, limit_s, links=None):
    """`links` (AwakeLinks): prompts that are not pushed take turns with the others, with links that sleep and with links that do not."""
    kinds = ["pushed"] if what != "idle" else ["pushed", "alone", "awake"] if links is not None else ["pushed", "alone"]
    begin = time.monotonic()
    for number, length in enumerate(lengths, 1):
        end = begin + limit_s * number / len(lengths)  # what a short length leaves is the next one's
        load.one(length, True)  # warm
        runs = {kind: [] for kind in kinds}
        for i in range(repeats):
            for kind in kinds[i % len(kinds):] + kinds[:i % len(kinds)]:
                with links if kind == "awake" else contextlib.nullcontext():
                    runs[kind].append(load.one(length, kind == "pushed"))
            if i >= 3 and time.monotonic() > end:
                break
        pushed = runs["pushed"]
        parts = {key: statistics.median(landed[key] for _, _, landed in pushed) for key in pushed[0][2]}
        line = f"{what:>8} {length:6d} tokens, {len(pushed):3d}x: exposed us {spread([landed['exposed'] for *_, landed in pushed])}"
        line += "  (" + ", ".join(f"{key} {parts[key]:.0f}" for key in EXPOSED_PARTS) + ")"
        line += f"  TTFT less prefill us {spread([ttft - steps for ttft, steps, _ in pushed])}"
        line += "  (" + ", ".join(f"{key} {parts[key]:.0f}" for key in BESIDE_STEPS) + ")"
        if "alone" in runs:
            line += "  prefill us " + prefill_times({kind: [steps for _, steps, _ in some] for kind, some in runs.items()})
        print(line, flush=True)


def prefill_times(runs):
    median = {kind: statistics.median(some) for kind, some in runs.items()}
    alone = runs["alone"]
    control = statistics.median(alone[::2]) / statistics.median(alone[1::2] or alone)
    told = {"pushed": "pushed", "awake": "not, links awake"}
    return f"{median['alone']:.0f} not pushed (control {100 * (control - 1):+.2f} %), " + ", ".join(
        f"{us:.0f} {told[kind]} ({100 * (us / median['alone'] - 1):+.2f} %)" for kind, us in median.items() if kind != "alone")


class Background:
    """`count` choices that decode all the time."""

    def __init__(self, load, count):
        self.load, self.count, self.stop = load, count, threading.Event()
        self.connections = [http.client.HTTPConnection("127.0.0.1", load.cluster.ports[0], timeout=600) for _ in range(count)]
        self.pool = concurrent.futures.ThreadPoolExecutor(count)

    def decode(self, connection, body):
        try:
            while not self.stop.is_set():
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass  # __exit__ has cut it off

    def __enter__(self):
        options = self.load.options
        for connection in self.connections:
            self.pool.submit(self.decode, connection, self.load.request(options.background_prompt, max_tokens=options.background_tokens))
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if any(event == "step" and int(fields["decodes"]) == self.count for event, _, fields in self.load.decode.read()):
                return self
            time.sleep(0.01)
        self.__exit__()
        raise RuntimeError(f"no step of {self.count} choices at the decode worker")

    def __exit__(self, *_):
        self.stop.set()
        for connection in self.connections:
            if connection.sock is not None:
                with contextlib.suppress(OSError):  # closed already
                    connection.sock.shutdown(socket.SHUT_RDWR)
        self.pool.shutdown()


def print_disturbance(load, count, length, window_s, windows):
    """Windows with and without landings take turns; each step is held against the line through the quiet ones: contexts grow meanwhile."""
    quiet, busy, landings = [], [], 0
    stop = threading.Event()

    def land():
        landed = 0
        while not stop.is_set():
            token = load.random.randrange(3, load.vocab)
            load.first_token(load.request(length, max_tokens=4, stream=True, allowed_token_ids=[token], stop_token_ids=[token]))
            landed += 1
        return landed

    def steps(into, seconds):
        wanted, until = len(into) + 20, time.monotonic() + 30
        while len(into) < wanted and time.monotonic() < until:
            time.sleep(seconds)
            for event, at, fields in load.decode.read():
                if event == "step" and int(fields["decodes"]) == count and int(fields["prefill_tokens"]) == 0:
                    into.append((at, int(fields["compute_us"])))

    load.decode.read()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(windows):
            steps(quiet, window_s)
            stop.clear()
            jobs = [pool.submit(land) for _ in range(2)]
            time.sleep(window_s / 3)  # until pages land
            load.decode.read()
            steps(busy, window_s)
            stop.set()
            landings += sum(job.result() for job in jobs)
            load.decode.read()
    if len(quiet) < 10 or len(busy) < 10:
        raise RuntimeError(f"{len(quiet)} and {len(busy)} steps of {count} choices: too few")
    mean_t = statistics.fmean(t for t, _ in quiet)
    mean_us = statistics.fmean(us for _, us in quiet)
    slope = sum((t - mean_t) * (us - mean_us) for t, us in quiet) / max(sum((t - mean_t) ** 2 for t, _ in quiet), 1e-9)
    shares = [[us / (mean_us + slope * (t - mean_t)) for t, us in some] for some in (quiet, busy)]
    p50, p99 = ([percentile(share, q) for share in shares] for q in (0.5, 0.99))
    print(f"decode steps of {count} choices: {mean_us:.0f} us; with {landings} prompts of {length} tokens landing "
          f"p50 {100 * (p50[1] / p50[0] - 1):+.2f} %, p99 {100 * (p99[1] / p99[0] - 1):+.2f} % "
          f"({len(quiet)} steps without, {len(busy)} with; p99 over median without {p99[0] / p50[0]:.3f})", flush=True)


def attempt(what, call, *arguments):
    """A part that fails must not cost the others' numbers."""
    try:
        return call(*arguments) is not False
    except Exception as error:  # whatever it is: said, and the next part goes on
        print(f"{what} failed: {type(error).__name__}: {error}", flush=True)
        return False


def print_trouble(cluster):
    """What the processes say of themselves when a number is missing."""
    for process in [*cluster.workers.values(), *cluster.routers]:
        lines = [line for line in process.log.read_text(errors="replace").splitlines() if " warn " in line or " error " in line]
        state = "runs" if process.running() else f"exited with {process.popen.returncode}"
        print(f"{process.name} {state}: " + " | ".join(line[:200] for line in lines[-3:]), flush=True)


def run(cluster, options):
    load = Load(cluster, options)
    if not attempt("first request", load.one, options.lengths[0], True):
        print_trouble(cluster)
        return False
    attached = [fields for event, _, fields in LogTail(cluster.workers["prefill-0"].log).read() if event == "handoff_attached"]
    print(f"seed {options.seed}; attached: {attached}", flush=True)
    links = AwakeLinks(0, 1) if options.devices == "cuda:0,cuda:1" else None
    good = attempt("idle", print_exposed, load, options.lengths, options.repeats, "idle", 0.5 * options.limit_s, links)
    if options.decode_batch > 0:
        def busy():
            with Background(load, options.decode_batch):
                print_exposed(load, options.lengths, options.repeats, f"batch {options.decode_batch}", 0.35 * options.limit_s)
                print_disturbance(load, options.decode_batch, options.landing_length, options.window_s, options.windows)

        good = attempt("busy", busy) and good
    if not good:
        print_trouble(cluster)
    return good


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a golden model on CPU, a few repeats")
    parser.add_argument("--model", default=str(ROOT / "bench/shapes/llama-3.1-8b"))
    parser.add_argument("--devices", default="cuda:0,cuda:1", help="of the prefill and the decode worker")
    parser.add_argument("--pool-mib", type=int, default=61440, help="pages of each worker")
    parser.add_argument("--lengths", default="512,2048,8192,32768")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--decode-batch", type=int, default=64, help="0: idle only")
    parser.add_argument("--digest", action="store_true", help="pages with their digest (kvtransfer.digest)")
    parser.add_argument("--limit-s", type=float, default=90, help="of all measurements")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    options = parser.parse_args()
    options.small = options.quick
    options.background_prompt, options.background_tokens = 256, 6000
    options.landing_length, options.window_s, options.windows = 8192, 0.6, 5
    options.pause_s = 0.1
    if options.quick:
        options.model, options.devices, options.lengths = str(GOLDEN / "llama"), "cpu,cpu", "64,200"
        options.repeats, options.decode_batch = 4, 4
        options.background_prompt, options.background_tokens = 40, 1900
        options.landing_length, options.window_s, options.windows = 200, 0.15, 1
        options.pause_s = 0.0
    options.lengths = [int(length) for length in options.lengths.split(",")]
    return options


def main():
    options = parse()
    devices = options.devices.split(",")
    worker_args = ["--device", devices[0], "--kvtransfer.transports", "mapped", "--decode.local-prefill-tokens", 0,
                   "--decode.local-prefill-ratio", 0, "--scheduler.prefix-cache", "false", "--log-debug", "true",
                   "--kvtransfer.digest", "true" if options.digest else "false"]
    if options.small:
        worker_args += ["--kv.pool-mib", 64, "--context-len", 2048]
    else:
        worker_args += ["--load-format", "dummy", "--kv.pool-mib", options.pool_mib, "--kv.slab-mib", 1024, "--context-len", 40960,
                        "--cuda-graphs", "lazy"]
    cluster = BenchCluster(options.model, worker_args=worker_args, router_args=["--route.local-prompt-tokens", 0])
    argv = cluster.workers["decode-0"].argv
    argv[argv.index("--device") + 1] = devices[1]
    begin = time.monotonic()
    with cluster:
        print(f"{options.model}, {devices[0]} to {devices[1]}, ready in {time.monotonic() - begin:.0f} s", flush=True)
        sys.exit(0 if run(cluster, options) else 1)


if __name__ == "__main__":
    main()
