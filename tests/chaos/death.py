"""Workers that die: kill -9 at every stage, with and without another of their kind left."""

import json
import time

from clients import Stream, send_and_leave
from cluster import default_model
from harness import cluster, kill, kill_and_restart, random_ids, scenario, seeded
from oracles import Load, assert_none, settle, settle_without, still_right, wait_workers


def under_kill(name, prefill, decode, **load):
    with cluster(prefill, decode) as system:
        requests = Load(24, **load)
        assert_none(requests.run(system, kill_and_restart(name), repeat=3))
        still_right(system, requests, prefill + decode)


@scenario(short=True)
def decode_killed_with_another_left():
    """No error, the same text."""
    under_kill("decode-0", 1, 2)


@scenario()
def prefill_killed_with_another_left():
    """No error, the same text."""
    under_kill("prefill-0", 2, 1)


@scenario()
def decode_killed_with_several_choices():
    """n = 3: every choice is replayed on its own and goes on with its text."""
    under_kill("decode-1", 1, 2, n=3)


@scenario()
def the_only_prefill_worker_killed():
    """Requests wait for it, or a decode worker prefills them."""
    under_kill("prefill-0", 1, 1)


@scenario()
def the_only_decode_worker_killed_and_back():
    """Requests wait until it is back."""
    under_kill("decode-0", 1, 1)


@scenario()
def a_worker_restarts_on_the_same_address_five_times():
    """Each epoch's links, grants and mappings are dropped at once."""
    with cluster(1, 2) as system:
        requests = Load(24)

        def during(system):
            for _ in range(5):
                kill_and_restart("decode-0")(system)
                time.sleep(0.6)

        assert_none(requests.run(system, during, repeat=6))
        still_right(system, requests, 3)


@scenario(short=True)
def prefill_killed_just_after_dispatch():
    """D's pages are free within 2 s, not after a time-out of minutes (sgl#29017); at random moments, so that P also
    dies after its first token and before COMMIT."""
    rng = seeded("prefill killed just after dispatch")
    with cluster(1, 1) as system:
        for _ in range(8):
            for _ in range(6):
                send_and_leave(system.ports[0], random_ids(rng, 400), 0, max_tokens=8)
            time.sleep(rng.random() * 0.04)
            kill(system.workers["prefill-0"])
            settle_without(system, "prefill-0")
            system.workers["prefill-0"].start()
            wait_workers(system, 2)
        still_right(system, Load(8), 2)


@scenario()
def prefill_killed_at_random_moments():
    """Forty kills under load with another left: no error ever, whatever the stage."""
    rng = seeded("prefill killed at random moments")
    with cluster(2, 1) as system:
        requests = Load(24)

        def during(system):
            for _ in range(40):
                kill_and_restart(f"prefill-{rng.randrange(2)}")(system)
                wait_workers(system, 3)
                time.sleep(rng.random() * 0.1)

        assert_none(requests.run(system, during, repeat=60))
        still_right(system, requests, 3)


@scenario()
def decode_killed_after_commit_in_mid_stream():
    """A stream goes on with the next token as if nothing had been."""
    with cluster(1, 2) as system:
        requests = Load(6, max_tokens=300)
        for (prompt, fields), want in requests.items():
            stream = Stream(system.ports[0], prompt, **fields)
            stream.read(tokens=20)
            busy = [name for name in ("decode-0", "decode-1") if system.pages(name).get("used")]
            if busy:  # else the stream has been decoded to its end already
                kill_and_restart(busy[0])(system)
            assert stream.read() == want[0]
            wait_workers(system, 3)
        settle(system)


@scenario(short=True)
def all_prefill_workers_killed():
    """The decode worker stays ready (sgl#13657) and does not fill its log (llm-d#187)."""
    with cluster(2, 1) as system:
        for name in ("prefill-0", "prefill-1"):
            kill(system.workers[name])
        decode = system.workers["decode-0"]
        log_bytes = decode.log.stat().st_size
        errors = Load(8).run(system)
        time.sleep(3)
        assert decode.running() and system.ready("decode-0")
        grown = decode.log.stat().st_size - log_bytes
        assert grown < 20_000, f"the log grew by {grown} bytes in some seconds"
        assert_none(errors)  # it prefills them itself
        settle_without(system, "prefill-0", "prefill-1")


@scenario()
def no_worker_left_gives_one_clear_error_within_the_wait():
    """503 with a message, by route.queue_wait_ms."""
    with cluster(1, 1, router={"--route.queue-wait-ms": 1500}) as system:
        for process in system.workers.values():
            kill(process)
        time.sleep(0.2)
        begin = time.monotonic()
        try:
            system.complete([5] * 40, max_tokens=4)
            raise AssertionError("answered without workers")
        except OSError as error:
            assert getattr(error, "code", None) == 503, error
            assert error.headers["Retry-After"], "503 without Retry-After"
            assert json.loads(error.read())["error"]["message"], "an error without a message"
        assert time.monotonic() - begin < 4


@scenario()
def the_default_model_loses_a_decode_worker_with_stop_strings():
    """Real text, held back for a stop string, over the death of its worker."""
    stop = [" the end", "\n\n\n\n"]
    body = {"prompt": "Count slowly: one, two, three,", "max_tokens": 48, "temperature": 0, "stop": stop}
    with cluster(1, 2, model=default_model(), worker={"--kv.pool-mib": 256}) as system:
        want = system.post("/v1/completions", body)["choices"][0]
        requests = [system.post("/v1/completions", body)["choices"][0]["text"]]
        kill_and_restart("decode-0")(system)
        requests.append(system.post("/v1/completions", body)["choices"][0]["text"])
        kill_and_restart("decode-1")(system)
        requests.append(system.post("/v1/completions", body)["choices"][0]["text"])
        assert requests == [want["text"]] * 3, requests
        settle(system)
