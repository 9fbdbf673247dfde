"""Three processes give, token for token, what one process gives: greedy and seeded, alone and with many at once, over every transport and page size."""

import concurrent.futures
import random

import pytest

from cluster import GOLDEN, Cluster, default_model, generate

TRANSPORTS = ["mapped", "tcp", "ucx"]
HANDOFF_ALWAYS = ["--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0"]
ROUTER_ALWAYS = ["--route.local-prompt-tokens", "0"]


def requests(count, vocab, seed, longest):
    """Prompts of many lengths with their sampling: every third greedy, some with several choices."""
    rng = random.Random(seed)
    plan = []
    for i in range(count):
        prompt = [rng.randrange(3, vocab) for _ in range(rng.randrange(1, longest))]
        fields = {"max_tokens": rng.randrange(2, 24), "ignore_eos": True, "temperature": 0.0}
        if i % 3:
            fields.update(temperature=0.9, seed=rng.randrange(1 << 30), top_p=0.95)
            if i % 8 == 7:
                fields["n"] = 3
        plan.append((prompt, fields))
    return plan


def expected(model, plan, page_tokens):
    return [generate(model, prompt, page_tokens, **fields) for prompt, fields in plan]


def check_race(model, transport, page_tokens, vocab, count, longest):
    seed = 20260501
    print("seed", seed)
    plan = requests(count, vocab, seed, longest)
    want = expected(model, plan, page_tokens)
    args = ["--kvtransfer.transports", transport, "--kvtransfer.require", transport, "--kv.page-tokens", str(page_tokens),
            "--kv.pool-mib", "64", *HANDOFF_ALWAYS]
    with Cluster(model, worker_args=args, router_args=ROUTER_ALWAYS) as cluster:
        for (prompt, fields), ids in list(zip(plan, want))[:8]:  # alone
            assert cluster.complete(prompt, **fields) == ids
        with concurrent.futures.ThreadPoolExecutor(32) as pool:  # all at once
            got = list(pool.map(lambda item: cluster.complete(item[0], **item[1]), plan))
        assert got == want
        assert cluster.handoffs() >= count, "the prompts went through the handoff"
        for name in cluster.workers:
            pages = cluster.pages(name)
            assert pages["used"] == pages["granted"] == pages["quarantined"] == 0, (name, pages)


@pytest.mark.parametrize("page_tokens", [16, 64])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_golden_llama(transport, page_tokens):
    check_race(GOLDEN / "llama", transport, page_tokens, vocab=256, count=32, longest=200)


@pytest.mark.parametrize("family", ["mistral-swa", "qwen3", "llama-yarn"])
def test_golden_families(family):
    check_race(GOLDEN / family, "mapped", 16, vocab=256, count=16, longest=150)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_default_model(transport):
    check_race(default_model(), transport, 16, vocab=40000, count=8, longest=120)


def test_a_second_turn_reuses_the_first_answer_included():
    args = ["--kv.pool-mib", "64", *HANDOFF_ALWAYS]
    with Cluster(GOLDEN / "llama", worker_args=args, router_args=ROUTER_ALWAYS) as cluster:
        prompt = [3 + i % 200 for i in range(100)]
        fields = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
        first = cluster.complete(prompt, **fields)[0]
        second = prompt + first + [7] * 40
        reply = cluster.post("/v1/completions", {"prompt": second, "return_token_ids": True, **fields})
        assert reply["choices"][0]["token_ids"] == generate(cluster.model, second, **fields)[0]
        # P has the first prompt; D has the first prompt and the answer.
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= 96
        assert any(cluster.worker_metrics("decode-0")[k] > 0 for k in cluster.worker_metrics("decode-0")
                   if k.startswith("vllm:prefix_cache_hits_total"))


def test_decode_alone_serves_when_there_is_no_prefill_worker():
    with Cluster(GOLDEN / "llama", prefill=0, decode=1) as cluster:
        prompt = [3 + i % 200 for i in range(120)]
        fields = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}
        assert cluster.complete(prompt, **fields) == generate(cluster.model, prompt, **fields)
