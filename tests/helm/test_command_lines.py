"""The command lines of ci/cpu-values.yaml, run: only addresses, folders and discovery are of this machine. Then the probes as
Kubernetes asks them and the script of `helm test`."""

import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import pytest

from chart import CHART, ROOT, Rendered, at, ci_values, merged, own_containers

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from cluster import BIN, Process, default_model, free_port  # noqa: E402


class Pods:
    """A process for each router and worker container of a chart."""

    def __init__(self, rendered, folder):
        self.ports = {}
        (folder / "token").write_text("a cluster token for tests only\n")
        (folder / "api-keys").write_text("sk-test\n")
        self.folder = folder
        self.containers = [(t, c) for _, t in rendered.pods() for c in own_containers(t)]
        self.processes = []
        for template, container in self.containers:
            name = template["metadata"]["labels"]["app.kubernetes.io/component"]
            argv = [self.local(argument) for argument in container["args"]]
            self.processes.append(Process(name, [BIN / container["command"][0], *argv], folder))

    def port(self, port):
        return self.ports.setdefault(int(port), free_port())

    def local(self, argument):
        argument = argument.replace("$(POD_IP)", "127.0.0.1").replace("0.0.0.0", "127.0.0.1").replace("$(CPU_REQUEST)", "1")
        argument = argument.replace("/etc/baton/token/token", str(self.folder / "token"))
        argument = argument.replace("/etc/baton/api-keys/api-keys", str(self.folder / "api-keys"))
        argument = re.sub(r"kube:[^:]+", "127.0.0.1", argument)
        argument = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda match: str(self.port(match[0])), argument)
        if argument.startswith("--http.port="):
            return f"--http.port={self.port(argument.split('=')[1])}"
        return f"--model={default_model()}" if argument.startswith("--model=") else argument

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.stop()

    def ask(self, container, probe):
        get = at(container, f"{probe}.httpGet")
        port = next(p["containerPort"] for p in container["ports"] if p["name"] == get["port"])
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port(port)}{get['path']}", timeout=10) as answer:
                return answer.status
        except OSError:
            return None

    def wait(self, probe, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        for (_, container), process in zip(self.containers, self.processes, strict=True):
            while self.ask(container, probe) != 200:
                log = process.log.read_text()
                assert process.running(), f"{process.name} ended: {log}"
                assert time.monotonic() < deadline, f"{process.name}: {probe} still fails: {log}"
                time.sleep(0.1)


@pytest.fixture(scope="module")
def pods(tmp_path_factory):
    small = {"settings": {"kv.pool_mib": 64}}
    values = merged(ci_values("cpu"), {"auth": {"apiKeys": {"existingSecret": "keys"}}, "prefill": small, "decode": small})
    with Pods(Rendered(values), tmp_path_factory.mktemp("pods")) as running:
        yield running


def test_every_probe_passes(pods):
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        pods.wait(probe)


def test_helm_test_passes(pods):
    pods.wait("readinessProbe")
    done = subprocess.run(
        ["sh", CHART / "scripts" / "stream-completion.sh"],
        env={
            "PATH": os.environ["PATH"],
            "no_proxy": "*",
            "URL": f"http://127.0.0.1:{pods.port(8000)}",
            "MODEL": ci_values("cpu")["model"]["name"],
            "KEYS_FILE": str(pathlib.Path(pods.folder) / "api-keys"),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("data: {") >= 2
