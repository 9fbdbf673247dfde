"""Real processes for tests: a router and workers of one model on this host, on free ports, gone at the end."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build/release/bin"))
GOLDEN = ROOT / "tests/golden"


_given_ports = set()


def free_port() -> int:
    """Below the range from which the kernel takes ports for outgoing connections: those would get in between. No port twice."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        if port in _given_ports:
            continue
        _given_ports.add(port)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def default_model() -> str:
    return subprocess.run([ROOT / "scripts/fetch-default-model"], check=True, capture_output=True, text=True).stdout.strip()


class Process:
    """One child with its log; start() again after it died gives the same arguments, so the same address."""

    def __init__(self, name, argv, log_dir, log_file=None):
        self.name, self.argv = name, [str(a) for a in argv]
        self.log = pathlib.Path(log_file or pathlib.Path(log_dir) / f"{name}.log")
        self.popen = None

    def start(self):
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen(self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self, sig=signal.SIGKILL):
        self.popen.send_signal(sig)

    def running(self):
        return self.popen is not None and self.popen.poll() is None

    def stop(self, timeout_s=20):
        """SIGTERM, then the exit status; SIGKILL (status -9) if it takes longer."""
        if not self.running():
            return self.popen.returncode if self.popen else None
        self.popen.send_signal(signal.SIGCONT)
        self.popen.terminate()
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()


class Cluster:
    """with Cluster(model, prefill=1, decode=1) as c: c.post("/v1/completions", {...})

    `places` says at which address a process lives (default: loopback), `prefix(name)` what its command line begins with (a network
    namespace), `log_file` where all logs go instead of a file each."""

    def __init__(self, model, prefill=1, decode=1, both=0, routers=1, threads=1, worker_args=(), router_args=(), places=None,
                 prefix=lambda name: [], log_file=None):
        self.model, self.places = str(model), places or {}
        self.dir = tempfile.mkdtemp(prefix="baton-test-")
        self.workers, self.routers = {}, []
        token = pathlib.Path(self.dir) / "token"
        token.write_text("a cluster token for tests only\n")
        token.chmod(0o600)
        self.addresses, self.metrics_ports = {}, {}
        for role, count in (("prefill", prefill), ("decode", decode), ("both", both)):
            for i in range(count):
                name = f"{role}-{i}"
                host = self.host(name)
                self.addresses[name] = f"{host}:{free_port()}"
                self.metrics_ports[name] = free_port()
                argv = [*prefix(name), BIN / "baton-worker", "--role", role, "--listen", self.addresses[name], "--model", self.model,
                        "--threads", threads, "--link.token-file", token,
                        "--metrics-listen", f"{host}:{self.metrics_ports[name]}", *worker_args]
                self.workers[name] = Process(name, argv, self.dir, log_file)
        self.ports = [free_port() for _ in range(routers)]
        for i, port in enumerate(self.ports):
            name = f"router-{i}"
            argv = [*prefix(name), BIN / "baton-router", "--model", self.model, "--port", port, "--link.token-file", token,
                    "--workers", ",".join(self.addresses.values()), *router_args]
            self.routers.append(Process(name, argv, self.dir, log_file))

    def host(self, name):
        return self.places.get(name, "127.0.0.1")

    def router_url(self, port=None):
        port = port or self.ports[0]
        return f"http://{self.host(f'router-{self.ports.index(port)}')}:{port}"

    @property
    def url(self):
        return self.router_url()

    def __enter__(self):
        for process in [*self.workers.values(), *self.routers]:
            process.start()
        try:
            self.wait_ready()
        except Exception:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for process in [*self.routers, *self.workers.values()]:
            if process.running():
                process.kill(signal.SIGCONT)
                process.kill(signal.SIGTERM)
        for process in [*self.routers, *self.workers.values()]:
            process.stop(5)
        if os.environ.get("BATON_KEEP_LOGS"):
            print("logs kept in", self.dir)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def wait_ready(self, timeout_s=60):
        """Until every router sees every worker."""
        want = sum(2 if name.startswith("both") else 1 for name in self.workers)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if all(self.connected_workers(port) >= want for port in self.ports):
                return
            for process in [*self.workers.values(), *self.routers]:
                if not process.running():
                    raise RuntimeError(f"{process.name} exited: {process.log.read_text()[-2000:]}")
            time.sleep(0.02)
        raise RuntimeError("not ready: " + "".join(p.log.read_text()[-800:] for p in [*self.workers.values(), *self.routers]))

    def connected_workers(self, port=None):
        try:
            text = http_get(self.router_url(port) + "/metrics")
        except OSError:
            return 0
        return int(sum(v for k, v in parse_metrics(text).items() if k.startswith(("baton_workers_prefill{", "baton_workers_decode{"))))

    def worker_url(self, name):
        return f"http://{self.host(name)}:{self.metrics_ports[name]}"

    def worker_metrics(self, name, timeout_s=5):
        return parse_metrics(http_get(self.worker_url(name) + "/metrics", timeout_s))

    def router_metrics(self, port=None):
        return parse_metrics(http_get(self.router_url(port) + "/metrics"))

    def debug(self, name, what, timeout_s=5):
        """What a worker says at /debug/pages or /debug/handoffs."""
        return json.loads(http_get(self.worker_url(name) + "/debug/" + what, timeout_s))

    def ready(self, name):
        try:
            with urllib.request.urlopen(self.worker_url(name) + "/readyz", timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False

    def pages(self, name, timeout_s=5):
        """State -> pages, over all kv_groups."""
        pages = {}
        for key, value in self.worker_metrics(name, timeout_s).items():
            if key.startswith("baton_pages{"):
                state = key.split('state="')[1].split('"')[0]
                pages[state] = pages.get(state, 0) + int(value)
        return pages

    def handoffs(self):
        return sum(int(v) for name in self.workers for k, v in self.worker_metrics(name).items()
                   if k.startswith("baton_handoffs_landed_total"))

    def post(self, path, body, port=None, timeout_s=120):
        request = urllib.request.Request(self.router_url(port) + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            return json.load(reply)

    def complete(self, prompt_ids, port=None, timeout_s=120, **fields):
        """Token ids of each choice."""
        body = {"prompt": prompt_ids, "return_token_ids": True, **fields}
        reply = self.post("/v1/completions", body, port, timeout_s)
        return [choice["token_ids"] for choice in sorted(reply["choices"], key=lambda c: c["index"])]


def http_get(url, timeout_s=5):
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as reply:
            return reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def parse_metrics(text):
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            values[key] = float(value)
    return values


def generate(model, prompt_ids, page_tokens=16, threads=1, **flags):
    """What one process gives: the ids of `baton generate`, one list a choice ("--- choice K" stands between them)."""
    argv = [BIN / "baton", "generate", "--model", model, "--token-ids", ",".join(map(str, prompt_ids)), "--print-ids",
            "--page-tokens", page_tokens, "--threads", threads]
    for key, value in flags.items():
        argv.append("--" + key.replace("_", "-"))
        if value is not True:
            argv.append(value)
    out = subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True).stdout
    return [[int(t) for t in line.replace(",", " ").split()] for line in out.strip().splitlines() if not line.startswith("---")]
