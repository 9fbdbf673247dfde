"""Several routers of one pool of workers."""

import concurrent.futures
import time

from harness import LEASE_S, cluster, kill, scenario, stopped
from oracles import Load, assert_none, settle, wait_until


@scenario(short=True)
def a_router_dies_and_another_goes_on():
    """The dead one's requests are cancelled everywhere, the other's are not touched."""
    with cluster(1, 2, routers=2) as system:
        requests = Load(16)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            doomed = [pool.submit(system.complete, p, system.ports[1], 30, **f) for p, f in requests.plan]
            time.sleep(0.1)
            kill(system.routers[1])
            assert_none(requests.run(system))
            concurrent.futures.wait(doomed)
        settle(system)


@scenario()
def the_only_router_dies_and_comes_back():
    """Its workers hold nothing of it within 2 s, and serve the next one on the same address."""
    with cluster(2, 2) as system:
        requests = Load(24, max_tokens=200)
        for _ in range(5):

            def during(system):
                kill(system.routers[0])
                settle(system)
                system.routers[0].start()

            requests.run(system, during)  # its clients see a closed connection
            system.wait_ready()
        assert_none(requests.run(system))
        settle(system)


@scenario()
def two_routers_share_their_workers():
    """Neither starves the other: equal loads take about equally long."""
    with cluster(2, 2, routers=2) as system:
        requests = Load(24)

        def through(port):
            begin = time.monotonic()
            assert_none(requests.run(system, parallel=24, repeat=12, port=port))
            return time.monotonic() - begin

        with concurrent.futures.ThreadPoolExecutor(2) as both:
            took = list(both.map(through, system.ports))
        print("  seconds:", [round(seconds, 2) for seconds in took])
        assert max(took) < 2 * min(took)
        settle(system)


@scenario()
def a_greedy_router_does_not_starve_another():
    """One keeps a hundred requests under way on full pools, the other's few are served meanwhile."""
    with cluster(1, 1, routers=2, worker={"--kv.pool-mib": 1}) as system:
        crowd, few = Load(24, max_tokens=200), Load(4, seed=2, max_tokens=20)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            greedy = pool.submit(crowd.run, system, parallel=100, repeat=20, timeout_s=120, port=system.ports[0])
            wait_until("the pool is full", lambda: system.worker_metrics("decode-0") and system.pages("decode-0").get("free", 1) < 13)
            begin = time.monotonic()
            assert_none(few.run(system, port=system.ports[1]))
            took = time.monotonic() - begin
            assert not greedy.done(), "the crowd was gone before: nothing was shown"
            assert_none(greedy.result())
        print(f"  four requests beside the crowd took {took:.1f} s")
        settle(system)


@scenario()
def a_router_stopped_while_it_streams():
    """Its workers give its requests up after the lease; the other router does not notice; it replays them when it goes on."""
    with cluster(1, 2, routers=2) as system:
        requests = Load(16, max_tokens=300)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            held = pool.submit(requests.run, system, port=system.ports[1])
            time.sleep(0.1)
            with stopped(system.routers[1]):
                assert_none(requests.run(system, port=system.ports[0]))
                time.sleep(LEASE_S)
                settle(system)
            assert_none(held.result())
        settle(system)
