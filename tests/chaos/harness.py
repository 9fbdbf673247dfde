"""What the scenarios share: the registry, the options of the command line, and clusters with small pools."""

import contextlib
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from cluster import GOLDEN, Cluster  # noqa: E402

import oracles  # noqa: E402

MODEL = GOLDEN / "llama"
# Every prompt goes through a handoff, unless a scenario says otherwise.
WORKER = {"--kv.pool-mib": 16, "--decode.local-prefill-tokens": 0, "--decode.local-prefill-ratio": 0}
# Prompts of 2000 tokens and more take long enough to be met in any stage.
SLOW = {"--scheduler.step-tokens": 32, "--scheduler.chunk-tokens": 32, "--scheduler.prefix-cache": "false"}
ROUTER = {"--route.local-prompt-tokens": 0}
LEASE_S = 1.0  # link.lease_ms
SCENARIOS = {}


class Options:
    """Of the command line; filled in once by `run`."""

    soak_s = 600.0
    trouble_every_s = 15.0
    cancels = 10000
    seed = 0
    watch_memory = True


class Skipped(Exception):
    """This machine cannot show it; the reason is printed and counted apart."""


def scenario(short=False, name=None, doc=None):
    """Registers a function; `name` and `doc` for those made by a loop over roles and stages."""

    def register(function):
        SCENARIOS[name or function.__name__] = (function, short, doc or function.__doc__)
        return function

    return register


def seeded(what):
    """Random numbers of one scenario: the same for the same --seed, whatever ran before it."""
    return random.Random(f"{Options.seed} {what}")


@contextlib.contextmanager
def cluster(prefill=1, decode=1, worker=None, router=None, model=MODEL, **more):
    """A cluster under watch: pages always sum to the pool, quarantine keeps to its share, memory to its limit.

    `worker` and `router`: flags that add to or replace the ones above."""

    def flags(*settings):
        return [str(word) for pair in {k: v for s in settings for k, v in (s or {}).items()}.items() for word in pair]

    with Cluster(model, prefill, decode, worker_args=flags(WORKER, worker), router_args=flags(ROUTER, router), **more) as system:
        system.watch_memory = Options.watch_memory
        with oracles.Watch(system):
            yield system


def random_ids(rng, count):
    return [rng.randrange(3, 256) for _ in range(count)]


def kill(process, sig=signal.SIGKILL):
    """And waits until it is gone."""
    process.kill(sig)
    process.popen.wait()


def kill_and_restart(name):
    def during(system):
        kill(system.workers[name])
        system.workers[name].start()

    return during


@contextlib.contextmanager
def stopped(process):
    process.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        process.kill(signal.SIGCONT)


def stop_and_continue(name, seconds):
    def during(system):
        with stopped(system.workers[name]):
            time.sleep(seconds)

    return during
