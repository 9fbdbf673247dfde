"""SIGTERM to a router: not ready at once, its streams end as if nothing were, and it exits 0."""

import json
import signal
import time
import urllib.error
import urllib.request

import pytest

from cluster import GOLDEN, Cluster


def start_stream(cluster, max_tokens):
    body = json.dumps({"prompt": [5, 6, 7], "max_tokens": max_tokens, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    request = urllib.request.Request(f"{cluster.url}/v1/completions", body, {"Content-Type": "application/json"})
    stream = urllib.request.urlopen(request, timeout=60)
    assert stream.readline().startswith(b"data: ")
    return stream


def refusal(url, body=None):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=5)
    return refused.value


def wait_until_leaving(cluster):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{cluster.url}/readyz", timeout=5)
        except urllib.error.HTTPError as error:
            assert error.code == 503
            return
    raise AssertionError("/readyz does not tell that the router is leaving")


def test_streams_end_and_the_exit_is_clean():
    with Cluster(GOLDEN / "llama") as cluster:
        stream = start_stream(cluster, max_tokens=3000)
        router = cluster.routers[0]
        router.kill(signal.SIGTERM)
        wait_until_leaving(cluster)
        refused = refusal(f"{cluster.url}/v1/completions", b'{"prompt": [5], "max_tokens": 1}')
        assert refused.code == 503 and int(refused.headers["Retry-After"]) >= 1
        lines = stream.read().decode().split("\n\n")
        assert lines[-2] == "data: [DONE]"
        assert json.loads(lines[-3].removeprefix("data: "))["usage"]["completion_tokens"] == 3000
        assert router.popen.wait(5) == 0


def test_what_does_not_end_in_time_is_cut():
    with Cluster(GOLDEN / "llama", router_args=["--drain-timeout-ms", "300"]) as cluster:
        stream = start_stream(cluster, max_tokens=4000)
        router = cluster.routers[0]
        begun = time.monotonic()
        router.kill(signal.SIGTERM)
        assert router.popen.wait(5) == 0
        assert 0.2 < time.monotonic() - begun < 3
        with pytest.raises(Exception):
            stream.read()
        deadline = time.monotonic() + 2
        while cluster.pages("decode-0")["used"] > 0:  # the worker has seen its router go
            assert time.monotonic() < deadline
            time.sleep(0.02)
