"""A rolling update on one host: workers of another kv_compat_id take the place of the old ones, pod by pod and in both pools at once, while
requests run. Pages of the two builds do not mix, and nobody sees an error."""

import threading

from cluster import GOLDEN, generate
from load import load
from pods import pods_of

MODEL = GOLDEN / "llama"
PROMPTS = [[3 + (i * 11 + k * 7) % 250 for k in range(70)] for i in range(8)]
FIELDS = {"max_tokens": 150, "ignore_eos": True, "temperature": 0.8, "seed": 7}
HANDOFF_ALWAYS = ["--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0"]
NEW_BUILD = ["--kv.page-tokens", "32"]


def replace_all(pods, role):
    """As a Deployment does with maxSurge 1 and maxUnavailable 0: one more, then one less."""
    for old in [pod for pod in pods.pods.values() if pod.role == role]:
        pods.add(role, args=NEW_BUILD)
        pods.delete(old)


def test_another_build_takes_over_under_load():
    want = [generate(MODEL, prompt, **FIELDS) for prompt in PROMPTS]
    assert want == [generate(MODEL, prompt, page_tokens=32, **FIELDS) for prompt in PROMPTS]
    turn = iter(range(1 << 30))

    with pods_of(MODEL, prefill=2, decode=2, worker_args=HANDOFF_ALWAYS, router_args=["--route.local-prompt-tokens", "0"]) as (_, pods):

        def ask():
            i = next(turn) % len(PROMPTS)
            assert pods.cluster.complete(PROMPTS[i], **FIELDS) == want[i]

        old_ids = {row["kv_compat_id"] for row in pods.placement()["workers"]}
        with load(ask) as more:
            failures = []

            def roll(role):
                try:
                    replace_all(pods, role)
                except BaseException as error:
                    failures.append(error)

            pools = [threading.Thread(target=roll, args=(role,)) for role in ("prefill", "decode")]
            for pool in pools:
                pool.start()
            for pool in pools:
                pool.join()
            assert not failures, failures
            more()
        rows = [row for row in pods.placement()["workers"] if row["used"]]
        assert len(rows) == 4
        assert len({row["kv_compat_id"] for row in rows}) == 1
        assert not old_ids & {row["kv_compat_id"] for row in rows}
        assert sum(pods.landed(pod) for pod in pods.pods.values() if pod.role == "decode") > 0, "the new build has handed nothing over"
        metrics = pods.cluster.router_metrics()
        assert not any(v for k, v in metrics.items() if k.startswith("baton_requests_rejected_total"))
