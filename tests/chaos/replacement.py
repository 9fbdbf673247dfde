"""Workers and routers that come and go: restarts, drains, several routers, unlike models side by side."""

import concurrent.futures
import random
import signal
import time

from cluster import GOLDEN, Process, generate
from harness import (MODEL, Load, Stream, assert_none, cluster, kill_and_restart, random_ids, scenario, settle, still_right,
                     wait_workers)


@scenario()
def rolling_restart_of_every_worker_under_load():
    """One after the other, no request fails (nixl#795, sgl#34289)."""
    with cluster(2, 2) as system:
        requests = Load(24)

        def during(system):
            for name, process in list(system.workers.items()):
                assert process.stop(20) == 0, f"{name} did not drain"
                process.start()
                wait_workers(system, 4)

        assert_none(requests.run(system, during, repeat=20))
        still_right(system, requests, 4)


@scenario(short=True)
def a_restarted_prefill_worker_takes_one_request_then_a_long_one():
    """On the same address, at once (vllm#49238)."""
    with cluster() as system:
        requests, long = Load(1), Load(1, seed=2, shortest=3000, longest=3001, max_tokens=8)
        assert_none(requests.run(system))
        kill_and_restart("prefill-0")(system)
        assert_none(requests.run(system))
        assert_none(long.run(system))
        settle(system)


@scenario()
def a_worker_crash_loops():
    """Thirty kills of the same worker: nothing is used up for ever."""
    with cluster(2, 1) as system:
        requests = Load(8)
        for _ in range(30):
            kill_and_restart("prefill-1")(system)
            assert_none(requests.run(system))
        still_right(system, requests, 3)


@scenario(short=True)
def sigterm_drains_and_exits_0():
    """A decode worker finishes or hands back what it has."""
    with cluster(1, 2) as system:

        def during(system):
            assert system.workers["decode-0"].stop(15) == 0, "a drained worker exits with 0"

        assert_none(Load(24).run(system, during, repeat=2))
        del system.workers["decode-0"]
        settle(system)


@scenario()
def sigterm_drains_a_prefill_worker():
    """It waits until its pages are taken."""
    with cluster(2, 1) as system:

        def during(system):
            assert system.workers["prefill-0"].stop(15) == 0, "a drained worker exits with 0"

        assert_none(Load(24, longest=400).run(system, during, repeat=4))
        del system.workers["prefill-0"]
        settle(system)


@scenario(short=True)
def sigterm_lets_a_routers_streams_end():
    """Not ready at once, exit 0 after the last stream."""
    with cluster() as system:
        requests = Load(4, max_tokens=400)
        streams = [Stream(system.ports[0], prompt, **fields) for prompt, fields in requests.plan]
        for stream in streams:
            stream.read(tokens=5)
        system.routers[0].kill(signal.SIGTERM)
        assert [stream.read() for stream in streams] == [want[0] for want in requests.want]
        assert system.routers[0].popen.wait(10) == 0
        settle(system)


@scenario(short=True)
def a_router_dies_and_another_goes_on():
    """The dead one's requests are cancelled everywhere, the other's are not touched."""
    with cluster(1, 2, routers=2) as system:
        requests = Load(16)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            doomed = [pool.submit(system.complete, p, system.ports[1], 30, **f) for p, f in requests.plan]
            time.sleep(0.1)
            system.routers[1].kill(signal.SIGKILL)
            system.routers[1].popen.wait()
            assert_none(requests.run(system))
            concurrent.futures.wait(doomed)
        settle(system)


@scenario()
def two_routers_share_their_workers():
    """Neither starves the other: equal loads take about equally long (walk-through of PROTOCOL.md)."""
    with cluster(2, 2, routers=2) as system:
        requests = Load(24)

        def through(port):
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                jobs = [pool.submit(system.complete, p, port, 60, **f) for (p, f) in requests.plan * 6]
                assert [job.result() for job in jobs] == requests.want * 6
            return time.monotonic() - begin

        with concurrent.futures.ThreadPoolExecutor(2) as both:
            took = list(both.map(through, system.ports))
        print("  seconds:", [round(seconds, 2) for seconds in took])
        assert max(took) < 2 * min(took)
        settle(system)


@scenario()
def a_second_turn_finds_its_prefix():
    """On P, on D and on both (walk-through of PROTOCOL.md): the same text as without any cache, while P or D forgets."""
    rng = random.Random(47)
    with cluster() as system:
        for forgets in (None, "prefill-0", "decode-0"):
            first = random_ids(rng, 200)
            answer = system.complete(first, max_tokens=40, temperature=0, ignore_eos=True)[0]
            if forgets:
                kill_and_restart(forgets)(system)
                wait_workers(system, 2)
            second = [*first, *answer, *random_ids(rng, 30)]
            got = system.complete(second, max_tokens=20, temperature=0, ignore_eos=True)
            assert got == generate(MODEL, second, max_tokens=20, temperature=0, ignore_eos=True), forgets
        settle(system)


@scenario(short=True)
def the_first_token_ends_it():
    """max_tokens 1, and a stop token that comes first (walk-through of PROTOCOL.md): nothing is handed off in vain."""
    with cluster() as system:
        rng = random.Random(53)
        for _ in range(10):
            prompt = random_ids(rng, 100)
            first = system.complete(prompt, max_tokens=1, temperature=0, ignore_eos=True)[0]
            reply = system.post("/v1/completions", {"prompt": prompt, "max_tokens": 50, "temperature": 0, "stop_token_ids": first})
            assert reply["choices"][0]["finish_reason"] == "stop"
        settle(system)


@scenario(short=True)
def unlike_models_side_by_side():
    """A worker of another model among them: refused with a clear message, the rest goes on (old and new kv_compat_id)."""
    with cluster(1, 1) as system:
        stranger = system.workers["decode-0"].argv.copy()
        address = "127.0.0.1:" + str(system.ports[0] + 1)
        for flag, value in (("--listen", address), ("--model", GOLDEN / "qwen2")):
            stranger[stranger.index(flag) + 1] = str(value)
        metrics = stranger.index("--metrics-listen")
        del stranger[metrics : metrics + 2]
        other = Process("stranger", stranger, system.dir)
        router = system.routers[0]
        router.stop()
        router.argv[router.argv.index("--workers") + 1] += "," + address
        other.start()
        router.start()
        try:
            system.wait_ready()
            assert_none(Load(24).run(system))
            log = router.log.read_text() + other.log.read_text()
            assert "compat" in log, "nobody said that the models differ"
            settle(system)
        finally:
            other.stop()


@scenario()
def a_worker_with_another_token_is_kept_out():
    """A worker with another cluster token is kept out, with one clear line, and disturbs nobody."""
    with cluster(1, 1) as system:
        token = system.dir + "/other-token"
        with open(token, "w") as file:
            file.write("not the cluster's token\n")
        argv = system.workers["decode-0"].argv.copy()
        argv[argv.index("--link.token-file") + 1] = token
        argv[argv.index("--listen") + 1] = "127.0.0.1:" + str(system.ports[0] + 1)
        metrics = argv.index("--metrics-listen")
        del argv[metrics : metrics + 2]
        other, router = Process("stranger", argv, system.dir), system.routers[0]
        router.stop()
        router.argv[router.argv.index("--workers") + 1] += "," + argv[argv.index("--listen") + 1]
        other.start()
        router.start()
        try:
            system.wait_ready()
            assert_none(Load(16).run(system))
            assert "token" in (router.log.read_text() + other.log.read_text()).lower(), "nobody said that the token is wrong"
            settle(system)
        finally:
            other.stop()
