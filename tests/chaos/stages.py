"""Each role stopped, killed and cancelled in each stage of a request: the scenario waits until some request is in it."""

import collections
import concurrent.futures
import functools
import time

from clients import left_behind
from harness import LEASE_S, SLOW, cluster, kill, random_ids, scenario, seeded, stopped
from network import slow_lines
from oracles import Load, assert_none, settle, still_right, wait_until

# Stage of a request -> states of docs/protocol.md in which P or D holds it.
STATES = {
    "queued": {"queued", "reserving"},
    "prefilling": {"prefilling"},
    "transferring": {"transferring"},
    "decoding": {"decoding"},
    "preempted": {"preempted"},
}
# Stage -> requests that spend most of their time in it, and the workers' flags.
LONG_PROMPTS = {"shortest": 1500, "longest": 2000, "max_tokens": 4}
LONG_OUTPUTS = {"longest": 60, "max_tokens": 500}
SHAPES = {
    "queued": (LONG_PROMPTS, {**SLOW, "--prefill.reserve-ahead": 1}),
    "prefilling": (LONG_PROMPTS, SLOW),
    "transferring": (LONG_PROMPTS, {}),
    "decoding": (LONG_OUTPUTS, {}),
    "preempted": (LONG_OUTPUTS, {"--kv.pool-mib": 1}),
}


def states(system):
    """How many requests are in which state, over all workers that answer."""
    found = collections.Counter()
    for name in system.workers:
        try:
            view = system.debug(name, "handoffs", timeout_s=1)
        except OSError:
            continue
        found.update(row["state"] for kind in ("handoffs", "attempts") for row in view[kind])
    return found


def wait_stage(system, stage):
    return wait_until(f"a request is {stage}", lambda: sum(states(system)[state] for state in STATES[stage]), within_s=30)


def cluster_for(stage, prefill, decode, **more):
    make = slow_lines if stage == "transferring" else cluster
    return make(prefill, decode, worker=SHAPES[stage][1], **more)


def under_load(system, requests, trouble):
    """Sends the load again and again until the trouble is over. Returns the errors."""
    errors = []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(trouble, system)
        while not job.done():
            errors += requests.run(system, timeout_s=120)
        job.result()
    return errors


def stop_worker(role, stage):
    with cluster_for(stage, 2, 2) as system:
        requests = Load(16, seed=4, **SHAPES[stage][0])

        def during(system):
            for name in (f"{role}-0", f"{role}-1"):
                wait_stage(system, stage)
                with stopped(system.workers[name]):
                    time.sleep(1.5 * LEASE_S)

        assert_none(under_load(system, requests, during))
        still_right(system, Load(8), 4)


def kill_worker(role, stage):
    with cluster_for(stage, 2, 2) as system:
        requests = Load(16, seed=4, **SHAPES[stage][0])

        def during(system):
            for name in (f"{role}-0", f"{role}-1"):
                wait_stage(system, stage)
                kill(system.workers[name])
                wait_until("another is left", lambda: system.connected_workers() >= 3)
                system.workers[name].start()
                wait_until("it is back", lambda: system.connected_workers() >= 4)

        assert_none(under_load(system, requests, during))
        still_right(system, Load(8), 4)


def trouble_router(trouble, stage):
    with cluster_for(stage, 2, 2, routers=2) as system:
        requests = Load(8, seed=4, **SHAPES[stage][0])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            through_it = pool.submit(requests.run, system, port=system.ports[1], timeout_s=60)
            wait_stage(system, stage)
            others = pool.submit(requests.run, system, port=system.ports[0], timeout_s=60)
            if trouble == "killed":
                kill(system.routers[1])
            else:
                with stopped(system.routers[1]):
                    time.sleep(1.5 * LEASE_S)
            assert_none(others.result())
            errors = through_it.result()
        # A router that was away replays what its workers have given up; one that is dead answers nobody.
        assert trouble == "killed" or not errors, errors[:2]
        settle(system)
        assert_none(Load(8).run(system))


def cancel(stage):
    rng = seeded("cancelled while " + stage)
    with cluster_for(stage, 1, 1) as system:
        shape, host = SHAPES[stage][0], system.host("router-0")
        for _ in range(5):
            prompts = [random_ids(rng, shape["longest"]) for _ in range(8)]
            clients = [left_behind(system.ports[0], prompt, host=host, max_tokens=shape["max_tokens"]) for prompt in prompts]
            wait_stage(system, stage)
            for client in clients:
                client.close()
            settle(system)
        still_right(system, Load(8), 2)


def register():
    for stage in ("queued", "prefilling", "transferring", "decoding"):
        for role in ("prefill", "decode"):
            scenario(name=f"{role}_stopped_while_{stage}",
                     doc=f"SIGSTOP of each {role} worker in turn, longer than its lease, while requests are {stage}: no error, the "
                     "same text.")(functools.partial(stop_worker, role, stage))
            scenario(name=f"{role}_killed_while_{stage}",
                     doc=f"kill -9 of each {role} worker in turn while requests are {stage}: no error, the same text.")(
                         functools.partial(kill_worker, role, stage))
        for trouble in ("stopped", "killed"):
            scenario(name=f"router_{trouble}_while_{stage}",
                     doc=f"One of two routers {trouble} while requests are {stage}: the other's requests are not touched, nothing of "
                     "its own is left.")(functools.partial(trouble_router, trouble, stage))
    for stage in STATES:
        scenario(name=f"cancelled_while_{stage}", short=stage == "prefilling",
                 doc=f"Eight clients leave together while a request is {stage}, five times: all pages are back within 2 s.")(
                     functools.partial(cancel, stage))


register()
