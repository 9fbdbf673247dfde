"""`baton up` as an operator sees it: it restarts what dies, uses it again, drains on SIGTERM and leaves no process behind."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

import pytest

from cluster import BIN, GOLDEN, free_port, generate, http_get, parse_metrics


class Up:
    def __init__(self, tmp_path):
        self.port = free_port()
        argv = [BIN / "baton", "up", "--model", GOLDEN / "llama", "--port", self.port, "--log-dir", tmp_path / "logs", "--threads", 1,
                "--worker-arg=--kv.pool-mib=32", "--worker-arg=--decode.local-prefill-tokens=0",
                "--router-arg=--route.local-prompt-tokens=0"]
        self.popen = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.popen.stdout.readline()
        assert "Baton is ready" in line, line + self.popen.stderr.read()

    def children(self):
        """Role -> pid of the processes that it runs now."""
        pids = {}
        for pid in pathlib.Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children").read_text().split():
            try:
                argv = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except FileNotFoundError:
                continue
            role = argv[argv.index("--role") + 1] if "--role" in argv else "router"
            pids[role] = int(pid)
        return pids

    def complete(self, prompt, **fields):
        body = json.dumps({"prompt": prompt, "return_token_ids": True, **fields}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return [choice["token_ids"] for choice in json.load(reply)["choices"]]

    def remote_placements(self):
        metrics = parse_metrics(http_get(f"http://127.0.0.1:{self.port}/metrics"))
        return sum(v for k, v in metrics.items() if k.startswith("baton_requests_placed_total") and 'prefill="remote"' in k)


@pytest.fixture
def up(tmp_path):
    process = Up(tmp_path)
    yield process
    if process.popen.poll() is None:
        process.popen.kill()


PROMPT = [3 + i % 200 for i in range(80)]
FIELDS = {"max_tokens": 200, "temperature": 0, "ignore_eos": True}


@pytest.mark.parametrize("role", ["decode", "prefill"])
def test_a_killed_worker_hangs_nobody_and_is_used_again(up, role):
    want = generate(GOLDEN / "llama", PROMPT, **FIELDS)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        begin = time.monotonic()
        jobs = [pool.submit(up.complete, PROMPT, **FIELDS) for _ in range(24)]
        time.sleep(0.05)
        old = up.children()[role]
        os.kill(old, signal.SIGKILL)
        killed = time.monotonic()
        for job in jobs:
            assert job.result(timeout=10) == want  # restarted within the wait: an answer, not an error
        assert time.monotonic() - killed < 2, "ends within two seconds of the death"
        assert time.monotonic() - begin < 10
    deadline = time.monotonic() + 5
    while up.children().get(role, old) == old:
        assert time.monotonic() < deadline, "not restarted"
        time.sleep(0.05)
    before = up.remote_placements()
    deadline = time.monotonic() + 5
    while up.remote_placements() == before:  # both roles take part again
        assert time.monotonic() < deadline, "not used again"
        fresh = [3 + (i * 7 + time.monotonic_ns()) % 200 for i in range(80)]  # cached nowhere
        assert len(up.complete(fresh, **FIELDS)[0]) == FIELDS["max_tokens"]


def test_sigterm_drains_and_leaves_no_process_behind(up):
    pids = list(up.children().values())
    assert len(pids) == 3
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(up.complete, PROMPT, **{**FIELDS, "max_tokens": 1000})
        time.sleep(0.1)
        up.popen.send_signal(signal.SIGTERM)
        assert len(job.result(timeout=20)[0]) == 1000, "what runs is finished"
    assert up.popen.wait(20) == 0
    for pid in pids:
        assert not pathlib.Path(f"/proc/{pid}").exists(), f"process {pid} is left"


def test_a_missing_model_gets_one_clear_line(tmp_path):
    argv = [str(BIN / "baton-worker"), "--model", str(tmp_path / "none.gguf"), "--listen", f"127.0.0.1:{free_port()}"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    lines = [line for line in result.stderr.splitlines() if line]
    assert result.returncode != 0 and len(lines) == 1 and "none.gguf" in lines[0], result.stderr


@pytest.mark.parametrize("flag, value, told", [("--listen", "nonsense", 'listen: got "nonsense", want host:port'),
                                               ("--listen", "0.0.0.0:7100", "listen: got 0.0.0.0:7100 without a link.token_file"),
                                               ("--token-file", "none", "link.token_file: cannot read none")])
def test_a_wrong_address_was_told_only_when_the_model_had_been_loaded(tmp_path, flag, value, told):
    """A large one takes minutes. Here the model, too, is wrong: what is said of the links shows that they come first."""
    argv = [str(BIN / "baton-worker"), "--model", str(tmp_path / "none.gguf"), flag, value]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert told in result.stderr
