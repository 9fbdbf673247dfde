"""Too much at once: pools that overflow, queues that fill, requests that cannot fit."""

import concurrent.futures
import json
import time
import urllib.error

from clients import left_behind
from harness import cluster, random_ids, scenario, seeded
from oracles import Load, assert_memory_flat, assert_none, memory, page_states, settle, still_right, wait_until


@scenario(short=True)
def decode_pool_overflows_in_mid_generation():
    """Long outputs on a tiny pool: choices are preempted and resumed with the same text (sgl#6857)."""
    with cluster(worker={"--kv.pool-mib": 1}) as system:
        requests = Load(24, longest=60, max_tokens=380)
        assert_none(requests.run(system, parallel=24, timeout_s=120))
        settle(system)


@scenario()
def preemption_while_pages_land():
    """The same with long prompts arriving all the time."""
    with cluster(2, 1, worker={"--kv.pool-mib": 1}) as system:
        long_outputs, long_prompts = Load(8, longest=60, max_tokens=380), Load(16, seed=2, shortest=200, longest=400, max_tokens=4)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outputs = pool.submit(long_outputs.run, system, None, 8, 2, 120)
            prompts = pool.submit(long_prompts.run, system, None, 16, 3, 120)
            assert_none(outputs.result() + prompts.result())
        settle(system)


@scenario()
def shared_prefixes_at_full_pools():
    """Over 95 % of the pages in use with a prefix that all share (trt#12542, trt#12540)."""
    rng = seeded("shared prefixes at full pools")
    prefix = random_ids(rng, 128)
    with cluster(2, 1, worker={"--kv.pool-mib": 1}) as system:
        requests = Load(32, longest=120, max_tokens=100, prefix=prefix)
        fullest = 0.0

        def watch(system):
            nonlocal fullest
            for _ in range(40):
                pages = page_states(system, "decode-0")
                fullest = max(fullest, 1 - pages["free"] / pages["total"])
                time.sleep(0.05)

        assert_none(requests.run(system, watch, parallel=32, repeat=4, timeout_s=120))
        print(f"  the fullest pool was at {fullest:.0%}")
        assert fullest > 0.95
        settle(system)


@scenario()
def twice_the_capacity_then_half():
    """Refusals are 429 or 503 with Retry-After; when the load falls all is served (sgl#10110)."""
    with cluster(router={"--route.queue-max": 16, "--route.queue-wait-ms": 2000}) as system:
        requests = Load(16, max_tokens=100)
        refused = []

        def one(item):
            (prompt, fields), want = item
            try:
                assert system.complete(prompt, timeout_s=30, **fields) == want
            except urllib.error.HTTPError as error:
                assert error.code in (429, 503) and int(error.headers["Retry-After"]) >= 1, (error.code, error.headers)
                refused.append(json.loads(error.read())["error"]["message"])

        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            list(pool.map(one, requests.items() * 60))
        print(f"  {len(refused)} of {60 * 16} refused, the first: {refused[:1]}")
        still_right(system, requests, 2)


@scenario()
def three_hundred_transfers_to_one_peer():
    """None is dropped (nccl#2119)."""
    with cluster(worker={"--prefill.reserve-ahead": 400, "--kv.pool-mib": 64, "--scheduler.running-max": 400}) as system:
        assert_none(Load(60, longest=60, max_tokens=4).run(system, parallel=300, repeat=6))
        settle(system)


@scenario()
def a_large_request_among_many_small():
    """It is not starved by those that fit beside it."""
    with cluster(2, 1, worker={"--kv.pool-mib": 1}) as system:
        small, large = Load(24, longest=60, max_tokens=150), Load(1, seed=3, shortest=1199, longest=1200, max_tokens=60)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            crowd = pool.submit(small.run, system, None, 24, 10, 120)
            wait_until("there is no room for it", lambda: page_states(system, "decode-0")["free"] < 75)
            begin = time.monotonic()
            assert_none(large.run(system, timeout_s=60))
            took = time.monotonic() - begin
            assert not crowd.done(), "the crowd was gone before the large request was served: nothing was shown"
            assert_none(crowd.result())
        print(f"  the large one took {took:.1f} s")
        settle(system)


@scenario()
def a_request_larger_than_any_pool():
    """400 that names the limit, at once."""
    with cluster(worker={"--kv.pool-mib": 1}) as system:
        try:
            system.complete([5] * 3000, max_tokens=4)  # 1 MiB holds 2048 tokens
            raise AssertionError("answered")
        except urllib.error.HTTPError as error:
            assert error.code == 400, error.code
            assert json.loads(error.read())["error"]["message"]
        still_right(system, Load(4), 2)


@scenario()
def memory_is_flat_over_many_requests():
    """The slope of everybody's own memory over thousands of handoffs (vllm#24264)."""
    with cluster() as system:
        requests = Load(24, longest=60, max_tokens=4)
        assert_none(requests.run(system, repeat=60))
        before = memory(system)
        assert_none(requests.run(system, repeat=250))
        after = memory(system)
        print("  KiB:", {name: (before[name], after[name]) for name in before})
        assert_memory_flat(before, after, growth_kib=4 << 10)
        settle(system)


@scenario()
def every_decode_worker_is_full():
    """FULL from all: who waits too long gets 503 with Retry-After, the others their text."""
    with cluster(1, 2, worker={"--kv.pool-mib": 1}, router={"--route.queue-wait-ms": 300}) as system:
        requests = Load(24, shortest=300, longest=400, max_tokens=700)
        served = refused = 0

        def one(item):
            nonlocal served, refused
            (prompt, fields), want = item
            try:
                assert system.complete(prompt, timeout_s=60, **fields) == want
                served += 1
            except urllib.error.HTTPError as error:
                assert error.code in (429, 503) and int(error.headers["Retry-After"]) >= 1, (error.code, error.headers)
                refused += 1

        with concurrent.futures.ThreadPoolExecutor(48) as pool:
            list(pool.map(one, requests.items() * 2))
        print(f"  {served} served, {refused} told to come back")
        assert served and refused
        settle(system)
        assert_none(Load(8).run(system))


@scenario()
def preempted_requests_aborted_in_twenty_cycles():
    """Eleven that do not fit together, all cut off; memory stays flat (sgl#18701)."""
    rng = seeded("preempted and aborted")
    with cluster(worker={"--kv.pool-mib": 1}) as system:

        def preempted():
            return [row for row in system.debug("decode-0", "handoffs")["attempts"] if row["state"] == "preempted"]

        def cycle():
            clients = [left_behind(system.ports[0], random_ids(rng, 40), max_tokens=900) for _ in range(11)]
            wait_until("one is preempted", preempted)
            for client in clients:
                client.close()
            settle(system)

        cycle()
        before = memory(system)
        for _ in range(20):
            cycle()
        assert_memory_flat(before, memory(system), growth_kib=2 << 10)
        still_right(system, Load(8), 2)
