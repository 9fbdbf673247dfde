"""The router finds its workers by a Kubernetes API server, whatever becomes of that, and loses no request."""

import json
import os
import shutil
import subprocess
import urllib.request

import pytest

from cluster import BIN, GOLDEN, Process, free_port, generate, http_get
from kube import ApiServer
from load import load, wait_for
from pods import Pods, pods_of, probe

MODEL = GOLDEN / "llama"
PROMPT = [3 + i * 7 % 250 for i in range(70)]
FIELDS = {"max_tokens": 24, "ignore_eos": True, "temperature": 0.0}
HANDOFF_ALWAYS = ["--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0"]
ROUTER = ["--route.local-prompt-tokens", "0"]


@pytest.fixture(scope="module")
def want():
    return generate(MODEL, PROMPT, **FIELDS)


def asking(pods, want):
    def ask():
        assert pods.cluster.complete(PROMPT, **FIELDS) == want

    return ask


def test_pods_come_and_go_without_a_failed_request(want):
    with pods_of(MODEL, worker_args=HANDOFF_ALWAYS, router_args=ROUTER) as (_, pods), load(asking(pods, want)) as more:
        for role in ("decode", "prefill", "decode"):
            oldest = next(pod for pod in pods.pods.values() if pod.role == role)
            pods.add(role)
            more()
            pods.delete(oldest)
            more()
        assert len(pods.kube.slices) > 2, "all were in one slice"


def test_an_endpoint_that_is_terminating_keeps_its_link_and_gets_nothing_new(want):
    with pods_of(MODEL, worker_args=HANDOFF_ALWAYS, router_args=ROUTER) as (_, pods), load(asking(pods, want)) as more:
        leaving = next(pod for pod in pods.pods.values() if pod.role == "decode")
        pods.terminate(leaving)
        wait_for("it is withheld", lambda: pods.row(leaving).get("reason") == "terminating")
        more()  # whatever was on its way there has been answered
        before = pods.landed(leaving)
        more()
        assert pods.landed(leaving) == before > 0
        assert pods.row(leaving)["used"] is False
        leaving.terminating = False  # it was not deleted after all
        pods.tell("decode")
        wait_for("it is used again", lambda: pods.row(leaving).get("used"))


def test_pages_stay_in_their_zone_and_the_router_says_where_everybody_is(want):
    router = [*ROUTER, "--route.zone-policy", "require"]
    with pods_of(MODEL, prefill=0, decode=0, worker_args=HANDOFF_ALWAYS, router_args=router) as (_, pods):
        where = {"a": ["--zone", "a", "--nvlink-clique", "u.1"], "b": ["--zone", "b", "--nvlink-clique", "u.2"]}
        there, here = pods.make("decode", args=where["b"]), pods.make("decode", args=where["a"])
        prefill = pods.make("prefill", args=where["a"])
        pods.wait_ready(there, here, prefill)
        with load(asking(pods, want)):
            pass
        assert pods.landed(here) > 0
        assert pods.landed(there) == 0
        row = pods.row(here)
        assert (row["role"], row["zone"], row["clique"], row["mates"], row["used"], row["reason"]) == ("decode", "a", "u.1", 1, True, None)
        assert row["kv_compat_id"] == pods.row(prefill)["kv_compat_id"]
        assert row["pages"][0]["total"] > 0
        assert row["queue"]["status_age_seconds"] >= 0
        assert row["refusals"]["count"] >= 0
        assert pods.row(there)["mates"] == 0


def stale_sources(pods):
    return next(value for key, value in pods.cluster.router_metrics().items() if key.startswith("baton_discovery_stale_sources"))


FAILURES = {
    "hangs up": lambda kube: kube.hang_up(),
    "hangs up in mid-chunk": lambda kube: kube.hang_up(in_chunk=True),
    "has forgotten the version": lambda kube: kube.compact(),
    "falls silent": lambda kube: kube.fall_silent(),
    "goes away": lambda kube: kube.stop(),
}


def test_whatever_the_api_server_does_the_workers_stay_and_news_arrives(want):
    router = [*ROUTER, "--kube.idle-timeout-ms", "4000"]  # above the interval of bookmarks
    with pods_of(MODEL, worker_args=HANDOFF_ALWAYS, router_args=router) as (kube, pods), load(asking(pods, want)) as more:
        changing = next(pod for pod in pods.pods.values() if pod.role == "decode")
        for name, fail in FAILURES.items():
            wait_for(f"a watch, before it {name}", lambda: kube.watches)
            fail(kube)
            more()
            assert len(pods.placement()["workers"]) == 3, name
            changing.ready = not changing.ready  # news, while it is away
            pods.tell("decode")
            if kube.server is None:
                wait_for("the trouble is told", lambda: pods.placement()["discovery"][0]["trouble"])
                wait_for("it is counted", lambda: stale_sources(pods) == len(pods.placement()["discovery"]))
                kube.start()
            reason = None if changing.ready else "not ready"
            wait_for(f"news after it {name}", lambda: pods.row(changing).get("reason") == reason and pods.row(changing)["used"] == changing.ready)
        wait_for("it is counted no more", lambda: stale_sources(pods) == 0)
        assert any(status == 410 or not watching for status, watching, _ in kube.requests[1:]), "no second list"


def test_the_token_is_rotated(want):
    with pods_of(MODEL, worker_args=HANDOFF_ALWAYS, router_args=ROUTER) as (kube, pods), load(asking(pods, want)) as more:
        kube.set_token("token-2", tell=False)
        kube.hang_up()
        wait_for("the old token is refused", lambda: any(status == 401 for status, _, _ in kube.requests))
        wait_for("it is told", lambda: "401" in (pods.placement()["discovery"][0]["trouble"] or ""))
        more()
        kube.set_token("token-2")
        wait_for("the new one is used", lambda: any(token == "token-2" and status == 200 for status, _, token in kube.requests))
        pods.add("decode")


def test_an_address_of_a_pod_that_died_is_another_pods(want):
    with pods_of(MODEL, prefill=2, worker_args=HANDOFF_ALWAYS, router_args=ROUTER) as (_, pods), load(asking(pods, want)) as more:
        died = next(pod for pod in pods.pods.values() if pod.role == "prefill")
        died.process.kill()
        died.process.popen.wait()
        del pods.pods[died.name]
        successor = pods.make("decode", ip=died.ip)  # both slices bear the address for a while
        pods.wait_ready(successor)
        pods.tell("prefill")
        wait_for("it is what it is", lambda: pods.row(successor).get("role") == "decode" and pods.row(successor)["used"])
        more()
        wait_for("it works", lambda: pods.landed(successor) > 0)


@pytest.mark.parametrize("wrong", ["another authority", "another name"])
def test_an_api_server_that_is_not_the_right_one_is_not_asked(wrong):
    with ApiServer(host="127.0.0.1" if wrong == "another authority" else "127.0.0.9") as kube, ApiServer() as other:
        pods = Pods(kube, MODEL)
        argv = pods.cluster.routers[0].argv
        if wrong == "another authority":
            argv[argv.index("--kube.ca-file") + 1] = str(other.dir / "ca.crt")
        with pods.cluster:
            wait_for("it is told", lambda: "certificate" in (placement_or_nothing(pods) or "no certif"))
        assert kube.requests == [], "the token has been told"


def placement_or_nothing(pods):
    entries = pods.placement()["discovery"]
    return entries and entries[0]["trouble"]


def test_a_router_outside_a_cluster_says_what_it_wants():
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")}
    argv = [BIN / "baton-router", "--model", MODEL, "--port", "0", "--workers", "kube:baton/decode:7100"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "kube.api_server" in done.stderr
    # The way in which Kubernetes tells its containers; nobody listens there.
    told = {**environment, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    port = free_port()
    argv[argv.index("--port") + 1] = port
    router = subprocess.Popen([str(a) for a in argv], env=told, stderr=subprocess.DEVNULL)
    try:
        wait_for("it asks there", lambda: (entries_of(port) or [{}])[0].get("trouble"))
    finally:
        router.terminate()
        router.wait()


def entries_of(port):
    try:
        return json.loads(http_get(f"http://127.0.0.1:{port}/debug/placement"))["discovery"]
    except OSError:
        return []


def test_a_worker_says_what_it_is_and_how_far_its_start_has_come(tmp_path):
    model = tmp_path / "llama"
    shutil.copytree(MODEL, model)
    (model / "model.safetensors").unlink()
    os.mkfifo(model / "model.safetensors")  # whoever reads it waits for a writer
    listen, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    argv = [BIN / "baton-worker", "--role", "decode", "--listen", listen, "--model", model, "--metrics-listen", metrics,
            "--zone", "zone-a", "--nvlink-clique", "c.1"]
    worker = Process("worker", argv, tmp_path)
    worker.start()
    try:
        wait_for("it loads", lambda: "loading the model: 0 %" in probe(f"http://{metrics}/startupz"))
        assert probe(f"http://{metrics}/livez") == ""
        assert "loading" in probe(f"http://{metrics}/readyz")
        assert "loading" in probe(f"http://{metrics}/info")
        assert http_get(f"http://{metrics}/metrics") == ""
        assert worker.stop() == 0, "told to leave while it loads, it stayed"
    finally:
        worker.stop()
    worker.argv[worker.argv.index("--model") + 1] = str(MODEL)
    worker.start()
    try:
        wait_for("it has started", lambda: probe(f"http://{metrics}/startupz") == "")
        assert probe(f"http://{metrics}/readyz") == ""
        with urllib.request.urlopen(f"http://{metrics}/info") as reply:
            info = json.load(reply)
        assert (info["worker_id"], info["role"], info["clique"], info["zone"]) == (listen, "decode", "c.1", "zone-a")
        assert info["kv_compat_id"] and info["model"] and info["version"]
        group = info["capacity"]["kv_groups"][0]
        assert group["tokens"] == group["pages"] * group["page_tokens"] == info["capacity"]["tokens"] > 0
    finally:
        assert worker.stop() == 0
