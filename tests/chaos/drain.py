"""Workers and routers that are told to go."""

import signal

from clients import Stream
from harness import cluster, scenario
from oracles import Load, assert_none, settle, still_right, wait_workers


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
def a_drain_that_is_too_long_hands_its_streams_back():
    """Long outputs and a drain timeout of a second: another worker goes on with them, the drained one still exits 0."""
    with cluster(1, 2, worker={"--drain-timeout-ms": 1000, "--drain-hand-back-ms": 700}) as system:
        requests = Load(12, longest=60, max_tokens=1500)

        def during(system):
            assert system.workers["decode-0"].stop(15) == 0, "a drained worker exits with 0"
            system.workers["decode-0"].start()

        assert_none(requests.run(system, during, timeout_s=120, after_s=0.2))
        wait_workers(system, 3)
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


@scenario()
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


@scenario()
def every_worker_drains_while_one_is_stopped():
    """A stopped decode worker does not keep the prefill worker from ending: nobody waits for it longer than its lease."""
    with cluster(2, 2) as system:
        requests = Load(24)

        def during(system):
            system.workers["decode-0"].kill(signal.SIGSTOP)
            assert system.workers["prefill-0"].stop(15) == 0, "a drained worker exits with 0"
            system.workers["prefill-0"].start()
            system.workers["decode-0"].kill(signal.SIGCONT)

        assert_none(requests.run(system, during, repeat=6))
        still_right(system, requests, 4)
