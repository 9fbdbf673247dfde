"""What the scenarios share: the registry, loads with known answers, and the oracles."""

import concurrent.futures
import http.client
import json
import pathlib
import random
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from cluster import GOLDEN, Cluster, generate  # noqa: E402

MODEL = GOLDEN / "llama"
# Every prompt goes through a handoff, unless a scenario says otherwise.
WORKER = {"--kv.pool-mib": 16, "--decode.local-prefill-tokens": 0, "--decode.local-prefill-ratio": 0}
ROUTER = {"--route.local-prompt-tokens": 0}
SETTLE_S = 2.0  # after the last affected worker's death, drain or SIGCONT everything is back by then
SCENARIOS = {}


class Options:
    """Of the command line; filled in once by `run`."""

    soak_s = 600.0
    trouble_every_s = 15.0
    cancels = 10000


class Skipped(Exception):
    """This machine cannot show it; the reason is printed and counted apart."""


def scenario(short=False):
    def register(function):
        SCENARIOS[function.__name__] = (function, short)
        return function

    return register


def cluster(prefill=1, decode=1, worker=None, router=None, model=MODEL, **more):
    """`worker` and `router`: flags that add to or replace the ones above."""

    def flags(*settings):
        return [str(word) for pair in {k: v for s in settings for k, v in (s or {}).items()}.items() for word in pair]

    return Cluster(model, prefill, decode, worker_args=flags(WORKER, worker), router_args=flags(ROUTER, router), **more)


def random_ids(rng, count):
    return [rng.randrange(3, 256) for _ in range(count)]


class Load:
    """The same requests in every run; what they must answer comes from one process without a cluster."""

    def __init__(self, count, seed=1, shortest=20, longest=150, max_tokens=60, prefix=(), **fields):
        rng = random.Random(seed)
        self.plan = []
        for _ in range(count):
            prompt = [*prefix, *random_ids(rng, rng.randrange(shortest, longest))]
            drawn = {"max_tokens": max_tokens, "ignore_eos": True, "temperature": 0.8, "seed": rng.randrange(1 << 30)}
            self.plan.append((prompt, {**drawn, **fields}))
        self.want = [generate(MODEL, prompt, **fields) for prompt, fields in self.plan]

    def items(self):
        return list(zip(self.plan, self.want))

    def run(self, system, during=None, parallel=16, repeat=1, timeout_s=60, after_s=0.15):
        """Sends everything and calls during(system) once it is under way. Returns the errors; wrong text raises."""
        errors = []

        def one(item):
            (prompt, fields), want = item
            try:
                got = system.complete(prompt, timeout_s=timeout_s, **fields)
            except Exception as error:  # noqa: BLE001: counted and shown
                errors.append(error.read().decode() if hasattr(error, "read") else repr(error))
                return
            assert got == want, f"wrong text: got {got}, want {want}"

        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            jobs = [pool.submit(one, item) for _ in range(repeat) for item in self.items()]
            if during:
                time.sleep(after_s)
                during(system)
            for job in jobs:
                job.result()
        return errors


def assert_none(errors):
    assert not errors, f"{len(errors)} errors, first: {errors[:2]}"


def left_over(system):
    """Worker -> pages that are neither free nor cached."""
    left = {}
    for name in system.workers:
        try:
            pages = system.pages(name)
        except OSError as error:
            left[name] = str(error)
            continue
        busy = {state: pages[state] for state in ("used", "granted", "quarantined") if pages.get(state)}
        if busy:
            left[name] = busy
    return left


def settle(system, within_s=SETTLE_S):
    """Pages, and with them requests and handoffs, are back at the baseline on every worker."""
    deadline = time.monotonic() + within_s
    while left := left_over(system):
        assert time.monotonic() < deadline, f"left over after {within_s} s: {left}"
        time.sleep(0.05)


def wait_workers(system, count, within_s=20):
    deadline = time.monotonic() + within_s
    while system.connected_workers() < count:
        assert time.monotonic() < deadline, f"{system.connected_workers()} workers connected, want {count}"
        time.sleep(0.05)


def still_right(system, requests, workers):
    """The end of most scenarios: everybody is back, serves right answers and holds nothing."""
    wait_workers(system, workers)
    assert_none(requests.run(system))
    settle(system)


def kill_and_restart(name, sig=signal.SIGKILL):
    def during(system):
        process = system.workers[name]
        process.kill(sig)
        process.popen.wait()
        process.start()

    return during


def stop_and_continue(name, seconds):
    def during(system):
        process = system.workers[name]
        process.kill(signal.SIGSTOP)
        time.sleep(seconds)
        process.kill(signal.SIGCONT)

    return during


def send_and_leave(port, prompt, after_s, stream=True, **fields):
    """Sends a completion and closes the connection `after_s` later, whatever has come."""
    body = json.dumps({"prompt": prompt, "stream": stream, "ignore_eos": True, **fields})
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        time.sleep(after_s)


class Stream:
    """A streamed completion that the scenario reads at its own pace."""

    def __init__(self, port, prompt, timeout_s=60, **fields):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        body = json.dumps({"prompt": prompt, "stream": True, "return_token_ids": True, **fields})
        self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.read()
        self.ids = []

    def read(self, tokens=None):
        """Until so many tokens have come, or to the end."""
        while tokens is None or len(self.ids) < tokens:
            line = self.reply.readline().decode().strip()
            if line == "data: [DONE]":
                break
            if line.startswith("data: "):
                event = json.loads(line[6:])
                assert "error" not in event, event
                for choice in event["choices"]:
                    self.ids += choice.get("token_ids") or []
            elif not line and self.reply.isclosed():
                raise AssertionError(f"the stream ended early, after {len(self.ids)} tokens")
        return self.ids


def anonymous_kib(process):
    """Memory of a process that is its own: the pools are shared memory."""
    for line in pathlib.Path(f"/proc/{process.popen.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("no RssAnon")


def memory(system):
    everybody = [*system.workers.values(), *system.routers]
    return {process.name: anonymous_kib(process) for process in everybody if process.running()}


def assert_memory_flat(before, after, growth_kib=24 << 10):
    grown = {name: (before[name], kib) for name, kib in after.items() if name in before and kib > before[name] + growth_kib}
    assert not grown, f"memory grew, KiB before and after: {grown}"
