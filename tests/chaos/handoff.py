"""Handoffs in which nobody fails."""

import concurrent.futures

from cluster import default_model, generate
from harness import MODEL, cluster, kill_and_restart, random_ids, scenario, seeded
from oracles import Load, assert_none, settle, wait_workers


@scenario(short=True)
def calm():
    """Nothing happens: the control of all others, with no handoff at all, with handoffs, and with their pages' digests checked."""
    requests = Load(32)
    for worker in ({"--decode.local-prefill-tokens": 10000}, {}, {"--kvtransfer.digest": "true"}):
        with cluster(2, 2, worker=worker) as system:
            assert_none(requests.run(system))
            assert (system.handoffs() == 0) == ("--decode.local-prefill-tokens" in worker)
            settle(system)


@scenario()
def pages_of_many_slabs_by_every_transport():
    """Pools of 16 allocations, in use up to the last page (ucx#11283), by shared memory, UCX and TCP."""
    requests = Load(16, shortest=1500, longest=2000, max_tokens=40)
    for transport in ("mapped", "ucx", "tcp"):
        with cluster(worker={"--kv.slab-mib": 1, "--kvtransfer.require": transport, "--kvtransfer.transports": transport}) as system:
            assert_none(requests.run(system))
            settle(system)


@scenario()
def a_second_turn_finds_its_prefix():
    """On both, on D alone (P was restarted) and on P alone: the same text as without any cache."""
    rng = seeded("turns")
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


@scenario()
def the_first_token_ends_it():
    """max_tokens 1, and a stop token that comes first: nothing is handed off in vain."""
    with cluster() as system:
        rng = seeded("first token")
        for _ in range(10):
            prompt = random_ids(rng, 100)
            first = system.complete(prompt, max_tokens=1, temperature=0, ignore_eos=True)[0]
            reply = system.post("/v1/completions", {"prompt": prompt, "max_tokens": 50, "temperature": 0, "stop_token_ids": first})
            assert reply["choices"][0]["finish_reason"] == "stop"
        assert system.handoffs() == 0
        settle(system)


@scenario()
def choices_of_four_end_at_different_times():
    """n = 4, every choice with its own text; stop tokens end some early, the others go on as if alone."""
    with cluster() as system:
        rng = seeded("choices")
        early = 0
        for seed in range(12):
            prompt, common = random_ids(rng, 60), {"n": 4, "max_tokens": 60, "temperature": 1.5, "seed": seed, "ignore_eos": True}
            whole = system.complete(prompt, **common)
            assert whole == generate(MODEL, prompt, **common)
            stops = set(range(3, 15))
            cut = system.post("/v1/completions", {"prompt": prompt, "return_token_ids": True, **common, "stop_token_ids": list(stops)})
            for choice in cut["choices"]:
                ids, full = choice["token_ids"], whole[choice["index"]]
                end = next((i for i, token in enumerate(full) if token in stops), len(full))
                assert ids in (full[:end], full[: end + 1]), (seed, choice["index"], ids, full)
                early += end < len(full)
        assert early > 5, early
        settle(system)


@scenario()
def local_prefill_while_grants_are_outstanding():
    """Short prompts that D computes itself beside long ones that land."""
    with cluster(1, 1, worker={"--decode.local-prefill-tokens": 64}, router={"--route.local-prompt-tokens": 32}) as system:
        short, long = Load(24, shortest=4, longest=60, max_tokens=30), Load(16, seed=2, shortest=200, longest=400, max_tokens=8)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(short.run, system, None, 16, 3), pool.submit(long.run, system, None, 16, 3)
            assert_none(first.result() + second.result())
        settle(system)


@scenario()
def equal_and_absent_request_ids():
    """A client's request id is a label: equal ones and none do not get into each other's way (kvcached#327)."""
    with cluster() as system:
        requests = Load(12)
        same = {"request_id": "one-for-all", "user": "somebody"}
        requests.plan = [(prompt, {**fields, **(same if i % 2 else {})}) for i, (prompt, fields) in enumerate(requests.plan)]
        assert_none(requests.run(system, repeat=3))
        settle(system)


@scenario()
def the_default_model_in_a_crowd():
    """Real text, greedy: sixteen at once, each answers what it answers alone (tpu-inference#3369: real text, no-transfer control)."""
    topics = ("The capital of France", "Water", "A prime number", "The moon", "Music", "An atom", "Rain", "A bicycle")
    prompts = [topic + " is" for topic in topics]
    body = {"max_tokens": 24, "temperature": 0}
    with cluster(2, 2, model=default_model(), worker={"--kv.pool-mib": 256}) as system:

        def ask(prompt):
            return system.post("/v1/completions", {"prompt": prompt, **body})["choices"][0]["text"]

        want = {prompt: ask(prompt) for prompt in prompts}
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for prompt, got in zip(prompts * 4, pool.map(ask, prompts * 4)):
                assert got == want[prompt], (prompt, got, want[prompt])
        settle(system)
