"""What the tests on GPUs share: what there is here, and clusters whose decode workers have a GPU of their own where there are two."""

import functools
import subprocess

import pytest

from cluster import GOLDEN, Cluster

WORKER = {"--device": "cuda", "--kv.pool-mib": 256, "--context-len": 2048, "--kvtransfer.transports": "mapped",
          "--decode.local-prefill-tokens": 0, "--decode.local-prefill-ratio": 0}
ROUTER = ["--route.local-prompt-tokens", "0"]


@functools.cache
def gpu_count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False, text=True)
    except FileNotFoundError:
        return 0
    return listed.stdout.count("GPU ") if listed.returncode == 0 else 0


needs_gpu = pytest.mark.skipif(gpu_count() == 0, reason="no GPU here")
needs_two_gpus = pytest.mark.skipif(gpu_count() < 2, reason="fewer than two GPUs here")


def worker_args(**settings):
    """WORKER with some of it replaced, and more: kv__pool_mib=64 is --kv.pool-mib 64."""
    flags = dict(WORKER, **{"--" + key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()})
    return [str(word) for flag in flags.items() for word in flag]


def gpu_cluster(prefill=1, decode=1, both=0, model=GOLDEN / "llama", **settings):
    """Everybody is on GPU 0, but for the decode workers where there are two. `settings`: as worker_args."""
    cluster = Cluster(model, prefill, decode, both, worker_args=worker_args(**settings), router_args=ROUTER)
    for name, process in cluster.workers.items():
        if name.startswith("decode") and gpu_count() > 1:
            process.argv[process.argv.index("--device") + 1] = "cuda:1"
    return cluster


def gpu_memory_mib():
    """In use, over all GPUs."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.run(query, capture_output=True, check=True, text=True).stdout.split()))
