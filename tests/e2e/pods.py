"""Workers as Kubernetes sees them: pods with an address each on one port, known to an ApiServer by their Service's slices."""

import contextlib
import json
import threading
import urllib.error
import urllib.request

from cluster import BIN, Cluster, Process, free_port, http_get
from kube import ApiServer, endpoint
from load import wait_for

SERVICES = ("baton-prefill", "baton-decode")


class Pod:
    def __init__(self, name, role, ip, process, number):
        self.name, self.role, self.ip, self.process, self.number = name, role, ip, process, number
        self.ready = self.terminating = False


class Pods:
    """A router that finds its workers by `kube`, and pods that are made and deleted as by a controller and a kubelet."""

    def __init__(self, kube, model, worker_args=(), router_args=()):
        self.kube, self.model, self.worker_args = kube, model, worker_args
        self.cluster = Cluster(model, prefill=0, decode=0, router_args=router_args)
        router = self.cluster.routers[0]
        at = router.argv.index("--workers")
        router.argv[at:at + 2] = [str(a) for a in kube.router_args(*SERVICES)]
        self.port, self.metrics_port = free_port(), free_port()
        self.pods, self.made = {}, 0
        self.lock = threading.RLock()  # pools may be changed by a thread each

    def make(self, role, ip=None, args=()):
        """A pod that is not ready so far; on an address of its own, or on one that has been somebody else's."""
        with self.lock:
            self.made += 1
            number = self.made
        name, ip = f"{role}-{number}", ip or f"127.0.7.{number}"
        argv = [BIN / "baton-worker", "--role", role, "--listen", f"{ip}:{self.port}", "--model", self.model, "--threads", 1,
                "--link.token-file", f"{self.cluster.dir}/token", "--metrics-listen", f"{ip}:{self.metrics_port}",
                *self.worker_args, *args]
        process = Process(name, argv, self.cluster.dir)
        process.start()
        self.cluster.workers[name] = process  # ends with it
        self.cluster.places[name], self.cluster.metrics_ports[name] = ip, self.metrics_port
        self.pods[name] = Pod(name, role, ip, process, number)
        self.tell(role)
        return self.pods[name]

    def wait_ready(self, *pods):
        """As the kubelet does, by the probe; then the router knows them."""
        for pod in pods:
            wait_for(f"{pod.name} is ready", lambda: self.probe(pod, "/readyz") == "" or not pod.process.running())
            assert pod.process.running(), pod.process.log.read_text()[-2000:]
            pod.ready = True
            self.tell(pod.role)
        for pod in pods:
            wait_for(f"the router uses {pod.name}", lambda: self.row(pod).get("used"))

    def add(self, role, **where):
        pod = self.make(role, **where)
        self.wait_ready(pod)
        return pod

    def terminate(self, pod):
        """What comes first when a pod is deleted: its endpoint says so, and it has not got its signal yet."""
        pod.terminating = True
        self.tell(pod.role)

    def delete(self, pod, timeout_s=60):
        """From beginning to end; the worker must leave by itself."""
        self.terminate(pod)
        status = pod.process.stop(timeout_s)
        del self.pods[pod.name]
        self.tell(pod.role)
        assert status == 0, pod.process.log.read_text()[-2000:]

    def tell(self, role):
        """Few endpoints a slice, so that there are several."""
        with self.lock:
            self.write_slices(role)

    def write_slices(self, role):
        pods = [p for p in self.pods.values() if p.role == role]
        groups = {p.name: p.number // 2 for p in pods}
        for group in set(groups.values()) | {int(n.rsplit("-", 1)[1]) for n in self.kube.slices if n.startswith(f"{role}-")}:
            members = [endpoint(p.ip, p.ready, p.terminating, uid=p.name) for p in pods if groups[p.name] == group]
            name = f"{role}-{group}"
            if members:
                self.kube.set_slice(name, f"baton-{role}", self.port, *members)
            elif name in self.kube.slices:
                self.kube.delete_slice(name)

    def landed(self, pod):
        """Prompts that have been handed over to it."""
        metrics = self.cluster.worker_metrics(pod.name)
        return sum(v for k, v in metrics.items() if k.startswith("baton_handoffs_landed_total"))

    def probe(self, pod, path):
        """What is wrong: empty when the answer is 200."""
        return probe(f"http://{pod.ip}:{self.metrics_port}{path}")

    def placement(self):
        """/debug/placement, as empty as it begins while the router is not up yet."""
        try:
            return json.loads(http_get(self.cluster.url + "/debug/placement"))
        except OSError:
            return {"workers": [], "discovery": []}

    def row(self, pod):
        """What the router says of it; nothing while it is not connected."""
        rows = [row for row in self.placement()["workers"] if row["address"] == f"{pod.ip}:{self.port}"]
        return rows[0] if rows else {}


def probe(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            reply.read()
            return ""
    except urllib.error.HTTPError as error:
        return error.read().decode() or str(error)
    except OSError as error:
        return str(error)


@contextlib.contextmanager
def pods_of(model, prefill=1, decode=2, worker_args=(), router_args=()):
    """(kube, pods) with so many of them ready."""
    with ApiServer() as kube:
        pods = Pods(kube, model, worker_args, router_args)
        with pods.cluster:
            first = [pods.make("prefill") for _ in range(prefill)] + [pods.make("decode") for _ in range(decode)]
            pods.wait_ready(*first)
            yield kube, pods
