"""More load than the workers carry: who is refused is told when to return, who is let in is served in time, priorities are kept, and all
is well again when the load is gone."""

import concurrent.futures
import json
import pathlib
import random
import statistics
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from cluster import BIN, GOLDEN, Cluster, http_get, parse_metrics

MODEL = GOLDEN / "llama"
PROMPT_TOKENS = 2000
TTFT_MAX_MS = 1000
# Small steps make a small model slow enough to be overloaded by one client; no prompt finds another one's pages.
WORKER = ["--scheduler.step-tokens", "64", "--scheduler.chunk-tokens", "64", "--scheduler.prefix-cache", "false", "--kv.pool-mib", "64"]


def prompt(rng):
    return [rng.randrange(3, 250) for _ in range(PROMPT_TOKENS)]


class Load:
    """`baton bench` in the background."""

    def __init__(self, cluster, **options):
        self.report = pathlib.Path(cluster.dir) / f"bench-{time.monotonic_ns()}.json"
        argv = [BIN / "baton", "bench", "--url", cluster.url, "--quiet", "--json", self.report, "--prompt-lengths", f"fixed:{PROMPT_TOKENS}",
                "--output-lengths", "fixed:2", "--token-id-min", 3, "--token-id-max", 249]
        for key, value in options.items():
            argv.append("--" + key.replace("_", "-"))
            if value is not True:
                argv.append(value)
        self.popen = subprocess.Popen([str(a) for a in argv])

    def running(self):
        return self.popen.poll() is None

    def result(self):
        assert self.popen.wait(120) == 0
        return json.loads(self.report.read_text())


def try_once(port, rng):
    """Status and Retry-After of one request."""
    body = json.dumps({"prompt": prompt(rng), "max_tokens": 2, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, None
    except urllib.error.HTTPError as error:
        assert json.load(error)["error"]["type"] == "rate_limit_error"
        return error.code, error.headers.get("Retry-After")


def refusals(cluster, reason):
    return sum(value for port in cluster.ports for key, value in parse_metrics(http_get(f"http://127.0.0.1:{port}/metrics")).items()
               if key.startswith("baton_requests_rejected_total") and f'reason="{reason}"' in key)


@pytest.fixture(scope="module")
def overloadable():
    """Two routers over one prefill and one decode worker; and what these carry, in requests/s."""
    with Cluster(MODEL, routers=2, worker_args=WORKER, router_args=["--route.ttft-max-ms", str(TTFT_MAX_MS)]) as cluster:
        Load(cluster, requests=20, concurrency=2).result()
        report = Load(cluster, requests=60, concurrency=4).result()
        assert report["refused"] == 0
        yield cluster, report["completed"] / report["duration_s"]


def test_twice_the_load(overloadable):
    cluster, capacity = overloadable
    seconds = 6
    load = Load(cluster, rate=2 * capacity, requests=int(2 * capacity * seconds))
    rng = random.Random(1)
    answers = {port: [] for port in cluster.ports}
    while load.running():
        for port in cluster.ports:  # the second router has no load of its own
            answers[port].append(try_once(port, rng))
    report = load.result()
    print("capacity", capacity, report)
    print([line for line in http_get(f"{cluster.url}/metrics").splitlines() if line.startswith(("baton_requests_", "baton_ttft_"))])
    for port, got in answers.items():
        refused = [retry_after for status, retry_after in got if status == 429]
        assert refused, f"the router on port {port} refused nothing"
        assert all(1 <= int(retry_after) < 60 for retry_after in refused), refused  # 60: further than forecasts reach
    assert report["failed"] == 0
    assert report["refused"] > 0.2 * report["requests"]
    assert report["completed"] > 0.1 * report["requests"]  # the machine may have less to give than when it was measured
    # What the last one would wait if everybody were let in, by what the machine had to give meanwhile.
    unbounded_ms = 1000 * (report["requests"] * report["duration_s"] / report["completed"] - seconds)
    assert report["ttft_ms"]["p99"] < unbounded_ms / 2
    assert refusals(cluster, "ttft") == report["refused"] + sum(status == 429 for got in answers.values() for status, _ in got)


def test_recovers_by_itself(overloadable):
    cluster, _ = overloadable
    rng = random.Random(2)
    deadline = time.monotonic() + 60
    while try_once(cluster.ports[0], rng)[0] != 200:
        assert time.monotonic() < deadline, "still refusing when the load is gone"
    report = Load(cluster, requests=40, concurrency=1).result()  # however slow the machine is now
    assert report["completed"] == report["requests"], report


def test_clients_that_obey_retry_after_are_all_served(overloadable):
    cluster, capacity = overloadable
    report = Load(cluster, rate=20 * capacity, requests=int(6 * capacity), retry=True).result()  # all at once
    assert report["completed"] == report["requests"], report
    assert report["retries"] > 0


def test_priorities_under_load():
    rng = random.Random(3)
    with Cluster(MODEL, worker_args=WORKER) as cluster:
        def finished_at(priority):
            cluster.complete(prompt(rng), max_tokens=2, ignore_eos=True, priority=priority)
            return time.monotonic()

        with concurrent.futures.ThreadPoolExecutor(80) as pool:
            low = [pool.submit(finished_at, 1) for _ in range(30)]
            usual = [pool.submit(finished_at, 0) for _ in range(30)]
            while cluster.worker_metrics("prefill-0").get("baton_queued_prompt_tokens", PROMPT_TOKENS) < PROMPT_TOKENS:
                time.sleep(0.01)
            urgent = [pool.submit(finished_at, -5) for _ in range(5)]
            low, usual, urgent = ([f.result() for f in group] for group in (low, usual, urgent))
        assert statistics.mean(urgent) < statistics.median(usual)
        assert max(urgent) < sorted(low)[len(low) // 2]
        assert statistics.mean(usual) < statistics.mean(low)
        report = cluster.post("/v1/completions", {"prompt": [5], "max_tokens": 1, "priority": 1000})
        assert report["choices"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            cluster.post("/v1/completions", {"prompt": [5], "max_tokens": 1, "priority": 1001})
        assert refused.value.code == 400
