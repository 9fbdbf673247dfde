"""What must hold: the undisturbed text, no needless error, everything back at its baseline in time, pages that add up."""

import concurrent.futures
import contextlib
import functools
import pathlib
import random
import threading
import time

from cluster import GOLDEN, generate

SETTLE_S = 2.0  # after the last affected worker's death, drain or SIGCONT everything is back by then
PEER_SHARE, LANDING_SHARE = 0.5, 0.8  # decode.max_granted_share, decode.max_landing_share
MEMORY_GROWTH_KIB = 24 << 10


@functools.lru_cache(None)
def undisturbed(prompt, fields):
    """What one process without a cluster answers."""
    return generate(GOLDEN / "llama", prompt, **dict(fields))


class Load:
    """The same requests in every run, with what they must answer."""

    def __init__(self, count, seed=1, shortest=20, longest=150, max_tokens=60, prefix=(), **fields):
        rng = random.Random(seed)
        self.plan = []
        for _ in range(count):
            prompt = [*prefix, *(rng.randrange(3, 256) for _ in range(rng.randrange(shortest, longest)))]
            drawn = {"max_tokens": max_tokens, "ignore_eos": True, "temperature": 0.8, "seed": rng.randrange(1 << 30)}
            self.plan.append((prompt, {**drawn, **fields}))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.want = list(pool.map(lambda item: undisturbed(tuple(item[0]), tuple(item[1].items())), self.plan))

    def items(self):
        return list(zip(self.plan, self.want))

    def run(self, system, during=None, parallel=16, repeat=1, timeout_s=60, after_s=0.15, port=None):
        """Sends everything and calls during(system) once it is under way. Returns the errors; wrong text raises."""
        errors = []

        def one(item):
            (prompt, fields), want = item
            try:
                got = system.complete(prompt, port, timeout_s, **fields)
            except Exception as error:  # noqa: BLE001: counted and shown
                errors.append(error.read().decode() if hasattr(error, "read") else repr(error))
                return
            assert got == want, f"wrong text: got {got}, want {want}, {fields}, prompt {prompt}"

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


def page_states(system, name, timeout_s=5):
    """State -> pages of one worker at one moment, over all kv_groups; "total" is the pool."""
    groups = system.debug(name, "pages", timeout_s)["kv_groups"]
    return {state: sum(group[state] for group in groups) for state in groups[0]}


def wait_until(what, true, within_s=20):
    deadline = time.monotonic() + within_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        time.sleep(0.005)
    return value


def wait_workers(system, count, within_s=20):
    """Until every router that runs sees so many."""
    for port, process in zip(system.ports, system.routers):
        if process.running():
            wait_until(f"{count} workers connected", lambda: system.connected_workers(port) >= count, within_s)


def left_over(system):
    """Process -> what it still holds: pages neither free nor cached, requests, handoffs."""
    left = {}
    for name in system.workers:
        try:
            pages, debug = page_states(system, name), system.debug(name, "handoffs")
            requests = {key: value for key, value in system.worker_metrics(name).items() if key.startswith("vllm:num_requests_")}
        except OSError as error:
            left[name] = str(error)
            continue
        busy = {state: pages[state] for state in ("used", "granted", "quarantined") if pages[state]}
        busy |= {key.split("{")[0]: value for key, value in requests.items() if value}
        busy |= {key: [row["state"] for row in rows] for key in ("handoffs", "grants", "attempts") if (rows := debug[key])}
        if busy:
            left[name] = busy
    for port, process in zip(system.ports, system.routers):
        if process.running() and not stopped_now(process):
            requests = {k: v for k, v in system.router_metrics(port).items() if k.startswith("vllm:num_requests_") and v}
            if requests:
                left[process.name] = requests
    return left


def settle(system, within_s=SETTLE_S):
    """Pages, requests, handoffs and memory are back at the baseline in every process."""
    deadline = time.monotonic() + within_s
    while left := left_over(system) or grown(system):
        assert time.monotonic() < deadline, f"left over after {within_s} s: {left}"
        time.sleep(0.05)


def settle_without(system, *dead):
    """The same for those that are left."""
    everyone = system.workers
    system.workers = {name: process for name, process in everyone.items() if name not in dead}
    try:
        settle(system)
    finally:
        system.workers = everyone


def still_right(system, requests, workers):
    """The end of most scenarios: everybody is back, serves right answers and holds nothing."""
    wait_workers(system, workers)
    assert_none(requests.run(system))
    settle(system)


def process_status(process, key):
    for line in pathlib.Path(f"/proc/{process.popen.pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return line.split()[1]
    raise AssertionError(f"no {key} of {process.name}")


def stopped_now(process):
    return process_status(process, "State") == "T"


def everybody(system):
    return [process for process in [*system.workers.values(), *system.routers] if process.running()]


def memory(system):
    """KiB of each process's own (the pools are shared memory); nothing where memory is not judged."""
    if not system.watch_memory:
        return {}
    return {process.name: int(process_status(process, "RssAnon")) for process in everybody(system)}


def held(system):
    """File descriptors and mappings of each process."""
    proc = {process.name: pathlib.Path(f"/proc/{process.popen.pid}") for process in everybody(system)}
    return {name: (len(list((p / "fd").iterdir())), (p / "maps").read_text().count("\n")) for name, p in proc.items()}


def grown(system):
    before = system.memory_at_start
    return {name: f"memory grew from {before[name]} to {kib} KiB" for name, kib in memory(system).items()
            if name in before and kib > before[name] + MEMORY_GROWTH_KIB}


def assert_memory_flat(before, after, growth_kib=MEMORY_GROWTH_KIB):
    grown_ones = {name: (before[name], kib) for name, kib in after.items() if name in before and kib > before[name] + growth_kib}
    assert not grown_ones, f"memory grew, KiB before and after: {grown_ones}"


class Watch:
    """Looks at every worker's pages all the time, whatever the scenario does; the first violation fails it at its end."""

    EVERY_S = 0.1

    def __init__(self, system):
        self.system, self.ended, self.violation = system, threading.Event(), None
        self.worst_quarantine = 0.0
        system.watch = self

    def __enter__(self):
        self.system.memory_at_start = memory(self.system)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def __exit__(self, kind, error, trace):
        self.ended.set()
        self.thread.join()
        if self.violation and not error:
            raise AssertionError(self.violation)

    def run(self):
        while not self.ended.wait(self.EVERY_S):
            for name in list(self.system.workers):
                with contextlib.suppress(OSError, ValueError):  # dead, stopped or cut off at the moment
                    wrong = self.wrong(name, page_states(self.system, name, timeout_s=0.3))
                    self.violation = self.violation or wrong

    def wrong(self, name, pages):
        total = pages.pop("total")
        if sum(pages.values()) != total:
            return f"{name}: the states of its {total} pages sum to {sum(pages.values())}: {pages}"
        share = pages["quarantined"] / total
        self.worst_quarantine = max(self.worst_quarantine, share)
        peers = sum(not other.startswith("decode") for other in self.system.workers)
        limit = PEER_SHARE if peers == 1 else LANDING_SHARE
        if share > limit:
            return f"{name}: {share:.0%} of its pages are quarantined, want at most {limit:.0%}: {pages}"
        return None
