"""Processes that stop and go on (SIGSTOP, SIGCONT): each role, at each stage. A stopped process still has its connections, and
its GPU or its pending copies may go on."""

import concurrent.futures
import random
import signal
import time

from harness import (Load, Stream, assert_none, cluster, random_ids, scenario, send_and_leave, settle, still_right,
                     stop_and_continue)

LEASE_S = 1.0  # link.lease_ms


def stopped_under_load(name, seconds=3.0, after_s=0.15, **load):
    with cluster(2, 2) as system:
        requests = Load(24, **load)
        assert_none(requests.run(system, stop_and_continue(name, seconds), repeat=4, after_s=after_s))
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
def prefill_stopped_while_requests_queue():
    """Stopped before they come; they go to the other."""
    with cluster(2, 1) as system:
        requests = Load(24)
        system.workers["prefill-0"].kill(signal.SIGSTOP)
        assert_none(requests.run(system))
        system.workers["prefill-0"].kill(signal.SIGCONT)
        still_right(system, requests, 3)


@scenario()
def prefill_stopped_while_it_prefills_long_prompts():
    """In mid-prompt, with grants held at D."""
    stopped_under_load("prefill-0", shortest=380, longest=440, max_tokens=8, after_s=0.05)


@scenario()
def prefill_stopped_at_random_moments():
    """Twenty short and long pauses: some hit a transfer in the middle (walk-through of PROTOCOL.md)."""
    rng = random.Random(17)
    with cluster(2, 2) as system:
        requests = Load(24, longest=400, max_tokens=16)

        def during(system):
            for _ in range(20):
                stop_and_continue(f"prefill-{rng.randrange(2)}", rng.choice([0.05, 0.3, 1.3]))(system)
                time.sleep(rng.random() * 0.1)

        assert_none(requests.run(system, during, repeat=40))
        still_right(system, requests, 4)


@scenario()
def decode_stopped_while_pages_land():
    """Long prompts, few tokens: mostly reservations and landings."""
    stopped_under_load("decode-1", shortest=300, longest=440, max_tokens=2, after_s=0.05)


@scenario()
def decode_stopped_while_it_decodes():
    """Short prompts, many tokens."""
    stopped_under_load("decode-1", longest=40, max_tokens=300)


@scenario()
def the_only_decode_worker_stopped_ten_seconds_under_load():
    """Prefill must not fill up and wedge (trt#12640): all is served after SIGCONT."""
    with cluster(2, 1) as system:
        requests = Load(24, max_tokens=16)
        assert_none(requests.run(system, stop_and_continue("decode-0", 10), parallel=48, repeat=6, timeout_s=90))
        still_right(system, requests, 3)


@scenario()
def router_stopped_while_it_streams():
    """Its workers give its requests up after the lease; the other router does not notice."""
    with cluster(1, 2, routers=2) as system:
        requests = Load(16)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            held = [pool.submit(system.complete, prompt, system.ports[1], 60, **fields) for prompt, fields in requests.plan]
            time.sleep(0.1)
            system.routers[1].kill(signal.SIGSTOP)
            assert_none(requests.run(system))
            time.sleep(LEASE_S + 0.5)
            settle(system)
            system.routers[1].kill(signal.SIGCONT)
            # Cut off by nobody: a router that was away replays what its workers have given up.
            assert [job.result() for job in held] == requests.want
        settle(system)


@scenario()
def a_stopped_prefill_worker_holds_at_most_its_share():
    """Quarantine stays under decode.max_granted_share while others are admitted."""
    with cluster(2, 1, worker={"--kv.pool-mib": 2}) as system:
        requests = Load(24, shortest=200, longest=400, max_tokens=8)
        worst = 0.0

        def during(system):
            nonlocal worst
            system.workers["prefill-0"].kill(signal.SIGSTOP)
            end = time.monotonic() + 4
            while time.monotonic() < end:
                pages = system.pages("decode-0")
                worst = max(worst, pages.get("quarantined", 0) / sum(pages.values()))
                time.sleep(0.05)
            system.workers["prefill-0"].kill(signal.SIGCONT)

        assert_none(requests.run(system, during, repeat=6, timeout_s=90))
        print(f"  at most {worst:.0%} of the pool in quarantine")
        assert worst <= 0.5, worst
        still_right(system, requests, 3)


@scenario()
def cancelled_while_prefill_is_stopped():
    """D's pages come back although P cannot answer: at SIGCONT, or at once where nothing was granted (vllm#46283)."""
    rng = random.Random(23)
    with cluster(1, 1) as system:
        for round_ in range(5):
            for _ in range(8):
                send_and_leave(system.ports[0], random_ids(rng, 400), 0.005, max_tokens=8)
            system.workers["prefill-0"].kill(signal.SIGSTOP)
            time.sleep(0.3 + LEASE_S * (round_ % 2) * 1.5)
            system.workers["prefill-0"].kill(signal.SIGCONT)
            settle(system)
        still_right(system, Load(8), 2)


@scenario(short=True)
def a_slow_reader_holds_nobody_up():
    """A client that does not read its stream; others are served, and it gets the rest when it reads again."""
    with cluster(1, 1) as system:
        slow = Load(1, max_tokens=400)
        (prompt, fields), want = slow.items()[0]
        stream = Stream(system.ports[0], prompt, **fields)
        assert_none(Load(16).run(system))
        assert stream.read() == want[0]
        settle(system)
