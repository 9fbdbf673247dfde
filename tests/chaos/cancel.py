"""Clients that leave: at every stage, in bursts, by the thousand."""

import concurrent.futures
import time

from clients import send_and_leave
from harness import Options, cluster, random_ids, scenario, seeded
from oracles import Load, assert_memory_flat, assert_none, memory, settle, still_right


@scenario()
def clients_disconnect_at_random():
    """Streaming and not, anywhere between the request's arrival and its end."""
    with cluster() as system:
        rng = seeded("clients disconnect at random")
        for _ in range(120):
            prompt = random_ids(rng, rng.randrange(1, 300))
            send_and_leave(system.ports[0], prompt, rng.random() * 0.03, stream=rng.random() < 0.7, max_tokens=200)
        settle(system)
        still_right(system, Load(8), 2)


@scenario(short=True)
def cancelled_at_a_random_moment_ten_thousand_times():
    """Free pages equal the start within a second after the last."""
    with cluster() as system:
        rng = seeded("cancelled at a random moment ten thousand times")

        def one(_):
            prompt = random_ids(rng, rng.randrange(1, 200))
            send_and_leave(system.ports[0], prompt, rng.random() * 0.05, max_tokens=100)

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(one, range(Options.cancels)))
        settle(system, within_s=1.0)


@scenario()
def bursts_cancelled_together_then_one_probe():
    """300 long prompts cut off at once, four times; then one request is answered at once (trt#12313, trt#13713)."""
    with cluster(worker={"--kv.pool-mib": 4}) as system:
        rng = seeded("bursts cancelled together then one probe")
        for _ in range(4):
            with concurrent.futures.ThreadPoolExecutor(300) as pool:
                for _ in range(300):
                    pool.submit(send_and_leave, system.ports[0], random_ids(rng, 400), 1.0, max_tokens=64)
            begin = time.monotonic()
            system.complete(random_ids(rng, 50), timeout_s=10, max_tokens=4)
            took = time.monotonic() - begin
            assert took < 3, f"the probe took {took:.1f} s"
        settle(system)


@scenario()
def a_warm_prefix_cancelled_within_five_milliseconds():
    """Again and again (ascend#16662): the pinned prefix is let go each time."""
    with cluster() as system:
        rng = seeded("a warm prefix cancelled within five milliseconds")
        prefix = random_ids(rng, 256)
        system.complete([*prefix, 5], max_tokens=2)
        for _ in range(200):
            send_and_leave(system.ports[0], [*prefix, *random_ids(rng, 20)], rng.random() * 0.005, max_tokens=50)
        settle(system)
        still_right(system, Load(8, prefix=prefix), 2)


@scenario()
def a_long_prompt_cut_off_does_not_delay_the_next():
    """The next request's first token comes as fast as on an idle system (dyn#14507)."""
    with cluster() as system:
        rng = seeded("a long prompt cut off does not delay the next")

        def probe():
            begin = time.monotonic()
            system.complete(random_ids(rng, 20), timeout_s=20, max_tokens=1)
            return time.monotonic() - begin

        probe()
        for _ in range(10):
            for _ in range(20):
                send_and_leave(system.ports[0], random_ids(rng, 480), 0.002, max_tokens=8)
            assert (took := probe()) < 1, f"{took:.2f} s behind prompts that nobody waits for"
        settle(system)


@scenario()
def one_in_ten_of_many_short_requests_cancelled():
    """Concurrency does not shrink over thousands (sgl#9266), memory does not grow (sgl#18701)."""
    with cluster() as system:
        rng = seeded("one in ten of many short requests cancelled")

        def some(count):
            def one(_):
                if rng.random() < 0.1:
                    send_and_leave(system.ports[0], random_ids(rng, 30), rng.random() * 0.01, max_tokens=30)
                else:
                    system.complete(random_ids(rng, 30), max_tokens=4)

            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(32) as pool:
                list(pool.map(one, range(count)))
            return count / (time.monotonic() - begin)

        some(1000)
        rate, used = some(1000), memory(system)
        for _ in range(5):
            some(1000)
        settle(system)
        later = some(1000)
        print(f"  {rate:.0f} requests/s at first, {later:.0f} six thousand later")
        assert later > rate / 2
        assert_memory_flat(used, memory(system))


@scenario()
def aborts_in_a_burst_then_the_next_is_served():
    """Never a hang, never an unhealthy pool that says it is healthy (sgl#31206)."""
    with cluster(2, 2) as system:
        rng = seeded("aborts in a burst then the next is served")
        for _ in range(5):
            with concurrent.futures.ThreadPoolExecutor(100) as pool:
                for _ in range(100):
                    pool.submit(send_and_leave, system.ports[0], random_ids(rng, 200), rng.random() * 0.05, max_tokens=200)
            assert_none(Load(4).run(system, timeout_s=10))
        settle(system)
