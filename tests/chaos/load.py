"""Too much at once: pools that overflow, queues that fill, requests that cannot fit."""

import concurrent.futures
import json
import random
import time
import urllib.error

from harness import Load, assert_memory_flat, assert_none, cluster, memory, random_ids, scenario, settle, still_right


@scenario(short=True)
def decode_pool_overflows_in_mid_generation():
    """Long outputs on a tiny pool: choices are preempted and resumed with the same text (sgl#6857)."""
    with cluster(worker={"--kv.pool-mib": 1}) as system:
        requests = Load(24, longest=60, max_tokens=380)
        assert_none(requests.run(system, parallel=24, timeout_s=120))
        settle(system)


@scenario()
def preemption_while_pages_land():
    """The same with long prompts arriving all the time (walk-through of PROTOCOL.md)."""
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
    rng = random.Random(43)
    prefix = random_ids(rng, 128)
    with cluster(2, 1, worker={"--kv.pool-mib": 1}) as system:
        requests = Load(32, longest=120, max_tokens=100, prefix=prefix)
        fullest = 0.0

        def watch(system):
            nonlocal fullest
            for _ in range(40):
                pages = system.pages("decode-0")
                fullest = max(fullest, 1 - pages.get("free", 0) / sum(pages.values()))
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


@scenario(short=True)
def three_hundred_transfers_to_one_peer():
    """None is dropped (nccl#2119)."""
    with cluster(worker={"--prefill.reserve-ahead": 400, "--kv.pool-mib": 64, "--scheduler.running-max": 400}) as system:
        assert_none(Load(60, longest=60, max_tokens=4).run(system, parallel=300, repeat=6))
        settle(system)


@scenario()
def a_large_request_among_many_small():
    """It is not starved by those that fit beside it (walk-through of PROTOCOL.md)."""
    with cluster(2, 1, worker={"--kv.pool-mib": 1}) as system:
        small, large = Load(24, longest=60, max_tokens=20), Load(1, seed=3, shortest=1199, longest=1200, max_tokens=60)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            crowd = pool.submit(small.run, system, None, 24, 20, 120)
            time.sleep(0.3)
            begin = time.monotonic()
            assert_none(large.run(system, timeout_s=60))
            took = time.monotonic() - begin
            assert not crowd.done(), "the crowd was gone before the large request was served: nothing was shown"
            assert_none(crowd.result())
        print(f"  the large one took {took:.1f} s")
        settle(system)


@scenario(short=True)
def a_request_larger_than_any_pool():
    """400 that names the limit, at once (walk-through of PROTOCOL.md)."""
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


@scenario(short=True)
def equal_and_absent_request_ids():
    """A client's x-request-id is a label: equal ones and none do not get into each other's way (kvcached#327)."""
    with cluster() as system:
        requests = Load(12)
        same = {"request_id": "one-for-all", "user": "somebody"}
        requests.plan = [(prompt, {**fields, **(same if i % 2 else {})}) for i, (prompt, fields) in enumerate(requests.plan)]
        assert_none(requests.run(system, repeat=3))
        settle(system)


@scenario()
def local_prefill_while_grants_are_outstanding():
    """Short prompts that D computes itself beside long ones that land (walk-through of PROTOCOL.md)."""
    with cluster(1, 1, worker={"--decode.local-prefill-tokens": 64}, router={"--route.local-prompt-tokens": 32}) as system:
        short, long = Load(24, shortest=4, longest=60, max_tokens=30), Load(16, seed=2, shortest=200, longest=400, max_tokens=8)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(short.run, system, None, 16, 3), pool.submit(long.run, system, None, 16, 3)
            assert_none(first.result() + second.result())
        settle(system)
