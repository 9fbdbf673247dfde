"""A worker that is told to leave: what it cannot finish in time goes on elsewhere, and nobody sees it; and what it shows of itself meanwhile."""

import concurrent.futures
import json
import time

import pytest

from cluster import GOLDEN, Cluster, generate, http_get

MODEL = GOLDEN / "llama"
ALL_REMOTE = ["--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0"]
# Handed back 100 ms after SIGTERM.
SHORT_DRAIN = ["--drain-timeout-ms", "10000", "--drain-hand-back-ms", "9900"]
PROMPTS = [[3 + (i * 7 + k) % 200 for k in range(40)] for i in range(16)]
FIELDS = {"max_tokens": 2000, "ignore_eos": True, "temperature": 0.8, "seed": 5}


def decoding_worker(cluster):
    """The decode worker with the most pages in use, once there is one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        used = {name: cluster.pages(name)["used"] for name in ("decode-0", "decode-1")}
        name = max(used, key=used.get)
        if used[name] > 10:
            return name
    raise AssertionError("nothing decodes")


@pytest.fixture
def cluster():
    with Cluster(MODEL, prefill=1, decode=2, worker_args=[*ALL_REMOTE, *SHORT_DRAIN], router_args=["--route.local-prompt-tokens", "0"]) as c:
        yield c


def test_long_decodes_on_a_draining_worker_go_on_at_the_other_with_the_same_text(cluster):
    want = [generate(MODEL, prompt, **FIELDS) for prompt in PROMPTS]
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        jobs = [pool.submit(cluster.complete, prompt, **FIELDS) for prompt in PROMPTS]
        leaving = cluster.workers[decoding_worker(cluster)]
        began = time.monotonic()
        assert leaving.stop(10) == 0
        assert time.monotonic() - began < 5
        assert [job.result() for job in jobs] == want  # an error would have been raised
    line = next(line for line in leaving.log.read_text().splitlines() if "worker_leaves" in line)
    assert "drained=true" in line
    assert int(line.split("handed_back=")[1].split()[0]) > 0, "it had finished everything: nothing was tested"


def test_a_draining_prefill_worker_leaves_when_its_pages_have_been_taken(cluster):
    want = [generate(MODEL, prompt, **FIELDS) for prompt in PROMPTS[:4]]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(cluster.complete, prompt, **FIELDS) for prompt in PROMPTS[:4]]
        decoding_worker(cluster)
        assert cluster.workers["prefill-0"].stop(10) == 0
        assert [job.result() for job in jobs] == want


def test_a_worker_shows_its_pages_and_handoffs(cluster):
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        jobs = [pool.submit(cluster.complete, prompt, **FIELDS) for prompt in PROMPTS]
        name = decoding_worker(cluster)
        url = f"http://127.0.0.1:{cluster.metrics_ports[name]}"
        pages = json.loads(http_get(url + "/debug/pages"))
        for group in pages["kv_groups"]:
            assert sum(group[s] for s in ("free", "cached", "used", "granted", "quarantined")) == group["total"]
        attempts = json.loads(http_get(url + "/debug/handoffs"))["attempts"]
        assert any(a["state"] == "decoding" and a["tokens"] == 40 for a in attempts)
        for job in jobs:
            job.result()
    metrics = cluster.worker_metrics(name)
    assert all(value == 0 for key, value in metrics.items() if key.startswith("baton_pages_oldest_age_seconds"))
