"""Workers and routers that come and go: restarts, drains, several routers, unlike models side by side."""

import contextlib
import os
import pathlib
import subprocess
import time

from cluster import GOLDEN, Process
from harness import cluster, kill_and_restart, scenario
from oracles import Load, assert_none, everybody, held, settle, still_right, wait_until, wait_workers


@scenario()
def rolling_restart_of_every_worker_under_load():
    """One after the other, no request fails (nixl#795, sgl#34289)."""
    with cluster(2, 2) as system:
        requests = Load(24)

        def during(system):
            for name, process in list(system.workers.items()):
                assert process.stop(20) == 0, f"{name} did not drain"
                process.start()
                wait_workers(system, 4)

        assert_none(requests.run(system, during, repeat=20))
        still_right(system, requests, 4)


@scenario()
def a_restarted_prefill_worker_takes_one_request_then_a_long_one():
    """On the same address, at once (vllm#49238)."""
    with cluster() as system:
        requests, long = Load(1), Load(1, seed=2, shortest=3000, longest=3001, max_tokens=8)
        assert_none(requests.run(system))
        kill_and_restart("prefill-0")(system)
        assert_none(requests.run(system))
        assert_none(long.run(system))
        settle(system)


@scenario()
def a_worker_crash_loops():
    """A hundred kills of the same worker: the others keep no descriptor, mapping or page of the dead (M3)."""
    with cluster(2, 1) as system:
        requests = Load(8)

        def once():
            kill_and_restart("prefill-1")(system)
            wait_workers(system, 3)
            assert_none(requests.run(system))

        for _ in range(10):
            once()
        survivors = ("decode-0", "prefill-0", "router-0")
        before = held(system)
        for _ in range(90):
            once()
        still_right(system, requests, 3)
        after = held(system)
        print("  descriptors and mappings:", {name: (before[name], after[name]) for name in survivors})
        for name in survivors:
            assert after[name][0] <= before[name][0] + 4 and after[name][1] <= before[name][1] + 32, name


@contextlib.contextmanager
def stranger(system, **flags):
    """A worker like decode-0 with other flags, on an address that the router is told of at its restart."""
    argv, router = system.workers["decode-0"].argv.copy(), system.routers[0]
    metrics = argv.index("--metrics-listen")
    del argv[metrics : metrics + 2]
    flags["--listen"] = "127.0.0.1:" + str(system.ports[0] + 1)
    for flag, value in flags.items():
        argv[argv.index(flag) + 1] = str(value)
    other = Process("stranger", argv, system.dir)
    router.stop()
    router.argv[router.argv.index("--workers") + 1] += "," + flags["--listen"]
    other.start()
    router.start()
    try:
        system.wait_ready()
        yield other
    finally:
        other.stop()


@scenario(short=True)
def unlike_models_side_by_side():
    """A worker of another model among them: refused with a clear message, the rest goes on (old and new kv_compat_id)."""
    with cluster(1, 1) as system, stranger(system, **{"--model": GOLDEN / "qwen2"}) as other:
        assert_none(Load(24).run(system))
        logs = (system.routers[0].log, other.log)
        wait_until("somebody says that the models differ", lambda: any("compat" in log.read_text() for log in logs), 5)
        settle(system)


@scenario()
def a_worker_with_another_token_is_kept_out():
    """With a clear line in a log, and it disturbs nobody."""
    with cluster(1, 1) as system:
        token = pathlib.Path(system.dir) / "other-token"
        token.write_text("not the cluster's token\n")
        token.chmod(0o600)
        with stranger(system, **{"--link.token-file": token}) as other:
            assert_none(Load(16).run(system))
            logs = (system.routers[0].log, other.log)
            wait_until("somebody says that the token is wrong", lambda: any("token" in log.read_text().lower() for log in logs), 5)
            settle(system)


@scenario()
def workers_join_and_leave_by_a_file():
    """The router's list is a file: under load a worker is taken out of it, drains, and is not dialled again until it is listed."""
    with cluster(2, 2) as system:
        listed, router = pathlib.Path(system.dir) / "workers", system.routers[0]
        listed.write_text("\n".join(system.addresses.values()) + "\n")
        router.stop()
        at = router.argv.index("--workers")
        router.argv[at : at + 2] = ["--workers-file", str(listed), "--route.discovery-interval-ms", "50"]
        router.start()
        system.wait_ready()
        requests = Load(24)

        def during(system):
            for name in ("decode-1", "prefill-0"):
                address = system.addresses[name]
                listed.write_text("\n".join(set(system.addresses.values()) - {address}) + "\n")
                wait_until("the router has read it", lambda: f"worker_address_gone address={address}" in router.log.read_text())
                assert system.workers[name].stop(15) == 0, "a drained worker exits with 0"
                system.workers[name].start()
                wait_until("it is up", lambda: system.ready(name))
                time.sleep(1)
                assert system.connected_workers() == 3, "dialled although it is not listed"
                listed.write_text("\n".join(system.addresses.values()) + "\n")
                wait_workers(system, 4)

        assert_none(requests.run(system, during, repeat=20))
        still_right(system, requests, 4)


def new_certificate(folder, name):
    """A key and a certificate by an authority of its own; returns the authority's certificate."""

    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    request, authority = folder / "request.pem", folder / "authority.pem"
    openssl("req", "-x509", *key, "-days", 2, "-subj", f"/CN=authority of {name}", "-keyout", folder / "authority-key.pem",
            "-out", authority)
    openssl("req", *key, "-subj", f"/CN={name}", "-keyout", folder / f"{name}-key.pem", "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", folder / "authority-key.pem", "-days", 2,
            "-out", folder / f"{name}-cert.pem")
    return authority.read_text()


@scenario()
def tokens_and_certificates_rotate_under_load():
    """Mutual TLS on every connection; a new authority, new certificates and a new token, then every worker is killed once:
    they find each other again without a restart of the rest."""
    with cluster(2, 2) as system:
        folder = pathlib.Path(system.dir)
        trusted = folder / "ca.pem"
        old = new_certificate(folder, "peer")
        trusted.write_text(old)
        flags = ["--link.tls-cert-file", folder / "peer-cert.pem", "--link.tls-key-file", folder / "peer-key.pem",
                 "--link.tls-ca-file", trusted]
        for process in everybody(system):
            process.stop()
            process.argv += map(str, flags)
            process.start()
        system.wait_ready()
        requests = Load(24)

        def during(system):
            new = new_certificate(folder, "next")
            trusted.write_text(old + new)
            for part in ("key", "cert"):
                os.replace(folder / f"next-{part}.pem", folder / f"peer-{part}.pem")
            token = folder / "token"
            token.write_text("the next token of this cluster\n" + token.read_text())
            for name in list(system.workers):
                kill_and_restart(name)(system)
                wait_workers(system, 4)

        assert_none(requests.run(system, during, repeat=20))
        still_right(system, requests, 4)
