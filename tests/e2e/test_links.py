"""The links between processes: mutual TLS, new certificates and tokens without a restart, workers that join and leave."""

import concurrent.futures
import contextlib
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import pytest

from cluster import GOLDEN, Cluster, generate

MODEL = GOLDEN / "llama"
PROMPT = [3 + i * 7 % 250 for i in range(70)]
FIELDS = {"max_tokens": 12, "ignore_eos": True, "temperature": 0.0}
HANDOFF_ALWAYS = ["--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0"]
ROUTER_ALWAYS = ["--route.local-prompt-tokens", "0"]
FAST_DISCOVERY = ["--route.discovery-interval-ms", "50"]


class Authority:
    """A folder with a CA and what it has signed, as files of fixed names: tls.pem, tls.key, ca.pem."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="baton-tls-"))
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                     "-subj", f"/CN={self.dir.name}", "-keyout", "ca.key", "-out", "ca.pem")
        self.issue()

    def openssl(self, *argv):
        subprocess.run(["openssl", *argv], cwd=self.dir, check=True, capture_output=True)

    def issue(self, days=1):
        """A new certificate with a new key, moved into place file by file."""
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=baton",
                     "-keyout", "new.key", "-out", "new.csr")
        self.openssl("x509", "-req", "-in", "new.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days),
                     "-out", "new.pem")
        (self.dir / "new.pem").rename(self.dir / "tls.pem")
        (self.dir / "new.key").rename(self.dir / "tls.key")

    def args(self):
        return ["--link.tls-cert-file", self.dir / "tls.pem", "--link.tls-key-file", self.dir / "tls.key",
                "--link.tls-ca-file", self.dir / "ca.pem"]


@pytest.fixture
def authority():
    made = Authority()
    yield made
    shutil.rmtree(made.dir, ignore_errors=True)


def expected():
    return generate(MODEL, PROMPT, **FIELDS)


def set_option(process, name, *values):
    """Another value of an option, or (with a name among the values) other options in its place."""
    at = process.argv.index(name)
    process.argv[at:at + 2] = [*([] if str(values[0]).startswith("--") else [name]), *map(str, values)]


def log_of(process):
    return process.log.read_text()


def wait_for(what, condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not seen in {timeout_s} s: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def load(cluster, streams=4):
    """Requests one after the other on some threads, from before the block until after it; each must give the right tokens."""
    want, stop, done = expected(), threading.Event(), []

    def stream():
        while not stop.is_set():
            assert cluster.complete(PROMPT, **FIELDS) == want
            done.append(1)

    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        running = [pool.submit(stream) for _ in range(streams)]
        try:
            wait_for("requests under load", lambda: len(done) >= streams or any(f.done() for f in running))
            yield done
            at = len(done)
            wait_for("requests after it", lambda: len(done) >= at + 2 * streams or any(f.done() for f in running))
        finally:
            stop.set()
    for future in running:
        future.result()


def metric(values, name, **labels):
    return sum(v for k, v in values.items() if k.startswith(name + "{") and all(f'{a}="{b}"' in k for a, b in labels.items()))


@pytest.mark.parametrize("transport", ["mapped", "tcp"])
def test_a_cluster_serves_under_mutual_tls(authority, transport):
    args = ["--kvtransfer.transports", transport, "--kvtransfer.require", transport, *HANDOFF_ALWAYS, *authority.args()]
    with Cluster(MODEL, worker_args=args, router_args=[*ROUTER_ALWAYS, *authority.args()]) as cluster:
        for _ in range(3):
            assert cluster.complete(PROMPT, **FIELDS) == expected()
        assert cluster.handoffs() >= 3
        seen = cluster.router_metrics()
        assert metric(seen, "baton_link_peers") == 2
        assert metric(seen, "baton_link_bytes_total", direction="in") > 0
        assert metric(seen, "baton_link_handshake_failures_total", reason="unauthenticated") == 0


@pytest.mark.parametrize("case", ["plain", "other authority", "expired"])
def test_who_does_not_fit_is_named_and_harms_nobody(authority, case):
    stranger = Authority()
    if case == "plain":
        other, words = [], "the peer wants it, and this process has no link.tls_cert_file"
    elif case == "other authority":
        other, words = stranger.args(), "TLS: the peer's certificate: self-signed certificate in certificate chain"
    else:
        shutil.copy(authority.dir / "ca.pem", stranger.dir)
        shutil.copy(authority.dir / "ca.key", stranger.dir)
        stranger.issue(days=-1)
        other, words = stranger.args(), "the peer does not take our certificate: certificate expired"
    with Cluster(MODEL, worker_args=authority.args(), router_args=authority.args()) as cluster:
        second = Cluster(MODEL, prefill=0, decode=0, router_args=other)
        process = second.routers[0]
        set_option(process, "--workers", cluster.addresses["decode-0"])
        set_option(process, "--link.token-file", pathlib.Path(cluster.dir) / "token")
        process.start()
        try:
            wait_for(words, lambda: words in log_of(process))
            wait_for("a line in the worker's log", lambda: "link_refused" in log_of(cluster.workers["decode-0"]))
            time.sleep(1)  # many tries
            assert log_of(process).count(words) <= 2, "the same trouble is told once"
            assert log_of(cluster.workers["decode-0"]).count("link_refused") <= 2
            assert cluster.complete(PROMPT, **FIELDS) == expected()
        finally:
            process.stop()
            shutil.rmtree(second.dir, ignore_errors=True)
            shutil.rmtree(stranger.dir, ignore_errors=True)


def test_certificates_and_token_change_under_load(authority):
    args = [*authority.args(), *HANDOFF_ALWAYS, "--kvtransfer.transports", "tcp"]
    with Cluster(MODEL, prefill=1, decode=2, worker_args=args, router_args=[*ROUTER_ALWAYS, *authority.args()]) as cluster:
        token = pathlib.Path(cluster.dir) / "token"
        old, new = token.read_text(), "the next cluster token for tests\n"
        with load(cluster):
            for text in (old + new, new + old, new):  # the three steps of a rollout
                token.with_suffix(".new").write_text(text)
                token.with_suffix(".new").rename(token)
                authority.issue()
                time.sleep(0.1)
        up = metric(cluster.router_metrics(), "baton_link_reconnects_total")
        assert up == 0, "no link is cut by new files"
        # What comes up from now on uses them.
        with load(cluster):
            worker = cluster.workers["decode-1"]
            assert worker.stop() == 0
            worker.start()
            wait_for("the worker is back", lambda: metric(cluster.router_metrics(), "baton_link_reconnects_total") >= 1)
        assert "link_credentials_reloaded" in log_of(cluster.routers[0])


def test_workers_join_and_leave_by_a_file_under_load():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "workers"
        file.write_text("# none so far\n")
        cluster = Cluster(MODEL, prefill=1, decode=3, worker_args=HANDOFF_ALWAYS)
        router = cluster.routers[0]
        set_option(router, "--workers", "--workers-file", file, *FAST_DISCOVERY, *ROUTER_ALWAYS)

        def want(*names):
            file.with_suffix(".new").write_text("".join(cluster.addresses[name] + "\n" for name in names))
            file.with_suffix(".new").rename(file)

        want(*cluster.addresses)
        with cluster:
            want("prefill-0", "decode-0", "decode-1", "decode-2")
            with load(cluster):
                want("prefill-0", "decode-1")
                wait_for("decode-0 and decode-2 are released", lambda: log_of(router).count("worker_address_gone") == 2)
                assert cluster.connected_workers() == 4, "a link that is up stays"
                assert cluster.workers["decode-0"].stop() == 0
                cluster.workers["decode-2"].kill()
                wait_for("both are gone", lambda: cluster.connected_workers() == 2)
                cluster.workers["decode-0"].start()
                wait_for("decode-0 listens", lambda: cluster.ready("decode-0"))
                assert cluster.connected_workers() == 2, "nobody dials what has left the list"
                file.write_text("no address\n")
                wait_for("the broken file is named", lambda: "workers_file_kept" in log_of(router))
                want("prefill-0", "decode-0", "decode-1")
                wait_for("decode-0 is back", lambda: cluster.connected_workers() == 3)


def test_workers_are_found_by_a_name():
    cluster = Cluster(MODEL, prefill=0, decode=0, both=1)
    router = cluster.routers[0]
    set_option(router, "--workers", "dns:localhost:" + cluster.addresses["both-0"].rpartition(":")[2])
    router.argv += FAST_DISCOVERY
    with cluster:
        assert cluster.complete(PROMPT, **FIELDS) == expected()
        first = cluster.addresses["both-0"]
        assert f"worker_address_added address={first}" in log_of(router)


def test_unlike_workers_are_named_and_do_not_disturb_the_others():
    cluster = Cluster(MODEL, prefill=2, decode=2, worker_args=HANDOFF_ALWAYS, router_args=ROUTER_ALWAYS)
    for name in ("prefill-1", "decode-1"):
        cluster.workers[name].argv += ["--kv.page-tokens", "64"]
    with cluster:
        for _ in range(4):
            assert cluster.complete(PROMPT, **FIELDS) == expected()
        words = "workers_do_not_mix"
        lines = [line for line in log_of(cluster.routers[0]).splitlines() if words in line]
        assert len(lines) == 1, lines
        assert any(cluster.addresses[name] in lines[0] for name in ("prefill-0", "decode-0"))
        assert any(cluster.addresses[name] in lines[0] for name in ("prefill-1", "decode-1"))


def test_the_end_of_a_link_was_told_as_a_failed_dial_too():
    with Cluster(MODEL, prefill=0, decode=0, both=1) as cluster:
        router, address = cluster.routers[0], cluster.addresses["both-0"]
        cluster.workers["both-0"].kill()
        wait_for("the end of the link", lambda: " link_down " in log_of(router))
        wait_for("a dial that fails", lambda: f"link_dial_failed address={address}" in log_of(router).partition(" link_down ")[2])
        since_up = log_of(router).partition(" link_down ")[0].partition(" link_up ")[2]
        assert "link_dial_failed" not in since_up
