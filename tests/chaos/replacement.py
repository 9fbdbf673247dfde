"""Workers and routers that come and go: restarts, drains, several routers, unlike models side by side."""

import contextlib
import os
import pathlib
import subprocess

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


@scenario(short=True)
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
        log = system.routers[0].log.read_text() + other.log.read_text()
        assert "compat" in log, "nobody said that the models differ"
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
            log = system.routers[0].log.read_text() + other.log.read_text()
            assert "token" in log.lower(), "nobody said that the token is wrong"
            settle(system)


@scenario()
def workers_join_and_leave_by_a_file():
    """The router's list is a file; under load a decode worker is taken out and put back, and killed meanwhile."""
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
                others = [address for other, address in system.addresses.items() if other != name]
                listed.write_text("\n".join(others) + "\n")
                wait_until("it has left", lambda: system.connected_workers() == 3)
                kill_and_restart(name)(system)
                listed.write_text("\n".join(system.addresses.values()) + "\n")
                wait_workers(system, 4)

        assert_none(requests.run(system, during, repeat=20))
        still_right(system, requests, 4)


def certificates(folder, names):
    """A new authority and a certificate and key of each name, in place."""

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    ca = folder / "new-ca.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=chaos",
            "-keyout", str(folder / "ca-key.pem"), "-out", str(ca))
    for name in names:
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout",
                str(folder / "new-key.pem"), "-out", str(folder / "request.pem"))
        openssl("x509", "-req", "-in", str(folder / "request.pem"), "-CA", str(ca), "-CAkey", str(folder / "ca-key.pem"),
                "-days", "2", "-out", str(folder / "new-cert.pem"))
        os.replace(folder / "new-key.pem", folder / f"{name}-key.pem")
        os.replace(folder / "new-cert.pem", folder / f"{name}-cert.pem")
    return ca.read_text()


@scenario()
def tokens_and_certificates_rotate_under_load():
    """Mutual TLS on every connection; a new authority, new certificates and a new token, then every worker is killed once:
    they find each other again without a restart of the rest."""
    with cluster(2, 2) as system:
        folder = pathlib.Path(system.dir)
        trusted = folder / "ca.pem"
        old = certificates(folder, ["peer"])
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
            new = certificates(folder / ".", ["next"])
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
