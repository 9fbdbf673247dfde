"""Processes that stop and go on (SIGSTOP, SIGCONT); stages.py does it in each stage. A stopped process still has its
connections, and its pending copies may go on."""

import signal
import time

from clients import Stream, send_and_leave
from harness import LEASE_S, cluster, kill, random_ids, scenario, seeded, stop_and_continue, stopped
from oracles import Load, assert_none, settle, settle_without, still_right


def stopped_under_load(name, seconds=3.0, **load):
    with cluster(2, 2) as system:
        requests = Load(24, **load)
        assert_none(requests.run(system, stop_and_continue(name, seconds), repeat=4))
        still_right(system, requests, 4)


@scenario()
def prefill_stopped_and_continued():
    """Longer than its lease: replayed on the other, its late stores land nowhere."""
    stopped_under_load("prefill-0")


@scenario()
def decode_stopped_and_continued():
    """Longer than its lease: replayed on the other."""
    stopped_under_load("decode-0")


@scenario(short=True)
def prefill_stopped_for_less_than_its_lease():
    """Nothing is given up: a pause is no death."""
    stopped_under_load("prefill-1", seconds=LEASE_S / 2)


@scenario()
def prefill_stopped_at_random_moments():
    """Twenty short and long pauses: some hit a copy in the middle."""
    rng = seeded("pauses of prefill")
    with cluster(2, 2) as system:
        requests = Load(24, longest=400, max_tokens=16)

        def during(system):
            for _ in range(20):
                stop_and_continue(f"prefill-{rng.randrange(2)}", rng.choice([0.05, 0.3, 1.3]))(system)
                time.sleep(rng.random() * 0.1)

        assert_none(requests.run(system, during, repeat=40))
        still_right(system, requests, 4)


@scenario()
def everybody_stopped_in_turn_at_random_moments():
    """Workers of both roles, two at once at times, for less and for more than a lease."""
    rng = seeded("pauses of all")
    with cluster(2, 2) as system:
        requests = Load(24, longest=300)

        def during(system):
            for _ in range(12):
                first, second = rng.sample(["prefill-0", "prefill-1", "decode-0", "decode-1"], 2)
                with stopped(system.workers[first]):
                    stop_and_continue(second, rng.choice([0.05, 0.4, 1.2]))(system)
                time.sleep(rng.random() * 0.5)

        assert_none(requests.run(system, during, repeat=30, timeout_s=120))
        still_right(system, requests, 4)


@scenario()
def the_only_decode_worker_stopped_ten_seconds_under_load():
    """Prefill must not fill up and wedge (trt#12640): all is served after SIGCONT."""
    with cluster(2, 1) as system:
        requests = Load(24, max_tokens=16)
        assert_none(requests.run(system, stop_and_continue("decode-0", 10), parallel=48, repeat=6, timeout_s=90))
        still_right(system, requests, 3)


@scenario()
def a_stopped_prefill_worker_holds_at_most_its_share():
    """On a small pool, with long prompts in flight: others are admitted meanwhile."""
    with cluster(2, 1, worker={"--kv.pool-mib": 2}) as system:
        requests = Load(24, shortest=200, longest=400, max_tokens=8)
        assert_none(requests.run(system, stop_and_continue("prefill-0", 4), repeat=6, timeout_s=90))
        worst = system.watch.worst_quarantine
        print(f"  at most {worst:.0%} of the pool in quarantine")
        assert worst <= 0.5, "decode.max_granted_share"
        still_right(system, requests, 3)


@scenario()
def cancelled_while_prefill_is_stopped():
    """D's pages come back although P cannot answer: at SIGCONT, or at once where nothing was granted (vllm#46283)."""
    rng = seeded("cancelled while prefill is stopped")
    with cluster(1, 1) as system:
        for round_ in range(5):
            for _ in range(8):
                send_and_leave(system.ports[0], random_ids(rng, 400), 0.005, max_tokens=8)
            stop_and_continue("prefill-0", 0.3 + LEASE_S * (round_ % 2) * 1.5)(system)
            settle(system)
        still_right(system, Load(8), 2)


@scenario(short=True)
def a_stopped_prefill_worker_is_killed():
    """What was quarantined for it is free within 2 s of its death."""
    rng = seeded("stopped, then killed")
    with cluster(1, 1, worker={"--kv.pool-mib": 2}) as system:
        process = system.workers["prefill-0"]
        for _ in range(3):
            for _ in range(8):
                send_and_leave(system.ports[0], random_ids(rng, 400), rng.random() * 0.005, max_tokens=8)
            process.kill(signal.SIGSTOP)
            time.sleep(1.5 * LEASE_S)
            kill(process)
            settle_without(system, "prefill-0")
            process.start()
            still_right(system, Load(8), 2)


@scenario()
def a_slow_reader_holds_nobody_up():
    """A client that does not read its stream; others are served, and it gets the rest when it reads again."""
    with cluster(1, 1) as system:
        slow = Load(1, max_tokens=400)
        (prompt, fields), want = slow.items()[0]
        stream = Stream(system.ports[0], prompt, **fields)
        assert_none(Load(16).run(system))
        assert stream.read() == want[0]
        settle(system)


@scenario()
def idle_for_longer_than_every_lease():
    """Then one request, at once (sgl#11648)."""
    with cluster(2, 2) as system:
        requests = Load(4)
        assert_none(requests.run(system))
        time.sleep(5 * LEASE_S)
        begin = time.monotonic()
        assert_none(requests.run(system))
        assert time.monotonic() - begin < 2
        settle(system)
