"""Each role stopped, killed and cancelled in each stage of a request: the scenario waits until some request is in it."""

import collections
import concurrent.futures
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


def stop_worker(role, stage):
    with cluster_for(stage, 2, 2) as system:
        requests = Load(16, seed=4, **SHAPES[stage][0])

        def during(system):
            for name in (f"{role}-0", f"{role}-1"):
                wait_stage(system, stage)
                with stopped(system.workers[name]):
                    time.sleep(1.5 * LEASE_S)

        assert_none(requests.run(system, during, repeat=3, timeout_s=120, after_s=0))
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

        assert_none(requests.run(system, during, repeat=3, timeout_s=120, after_s=0))
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
        shape = SHAPES[stage][0]
        for _ in range(5):
            clients = [left_behind(system.ports[0], random_ids(rng, shape["longest"]), host=system.host("router-0"), max_tokens=shape["max_tokens"])
                       for _ in range(8)]
            wait_stage(system, stage)
            for client in clients:
                client.close()
            settle(system)
        still_right(system, Load(8), 2)


for _stage in ("queued", "prefilling", "transferring", "decoding"):
    for _role in ("prefill", "decode"):
        scenario(name=f"{_role}_stopped_while_{_stage}", doc=f"SIGSTOP of each {_role} worker in turn, longer than its lease, while "
                 f"requests are {_stage}: no error, the same text.")(lambda role=_role, stage=_stage: stop_worker(role, stage))
        scenario(name=f"{_role}_killed_while_{_stage}", doc=f"kill -9 of each {_role} worker in turn while requests are {_stage}: no "
                 "error, the same text.")(lambda role=_role, stage=_stage: kill_worker(role, stage))
    for _trouble in ("stopped", "killed"):
        scenario(name=f"router_{_trouble}_while_{_stage}", doc=f"One of two routers {_trouble} while requests are {_stage}: the "
                 "other's requests are not touched, nothing of its own is left.")(
                     lambda trouble=_trouble, stage=_stage: trouble_router(trouble, stage))
for _stage in STATES:
    scenario(name=f"cancelled_while_{_stage}", doc=f"Eight clients leave together while a request is {_stage}, five times: all pages "
             "are back within 2 s.", short=_stage == "prefilling")(lambda stage=_stage: cancel(stage))
