"""A router, a prefill and a decode worker on one GPU: pages handed over in GPU memory, answers as the references say. Runs where there is a GPU."""

import concurrent.futures
import subprocess

import numpy as np
import pytest

from cluster import GOLDEN, Cluster, default_model
from test_golden_handoff import FAMILIES, read_safetensors

ALWAYS_HANDOFF = ["--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0"]
WORKER = ["--device", "cuda", "--kv.pool-mib", "256", "--context-len", "2048", "--kvtransfer.transports", "mapped", *ALWAYS_HANDOFF]
ROUTER = ["--route.local-prompt-tokens", "0"]
CLEAR_MARGIN = 0.3  # logits closer than this may change places in bfloat16


def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not has_gpu(), reason="no GPU here")


def log_softmax(row):
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.sum(np.exp(row - row.max())))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_handoff_on_the_gpu_gives_the_references_logits(family):
    """The second token's distribution is computed by the decode worker from pages that the prefill worker has pushed."""
    reference = read_safetensors(GOLDEN / family / "reference.safetensors")
    ids = [int(i) for i in reference["input_ids"]]
    worst = 0.0
    with Cluster(GOLDEN / family, worker_args=WORKER, router_args=ROUTER) as cluster:
        for length in (17, 48, 64, 99):
            reply = cluster.post("/v1/completions", {"prompt": ids[:length], "logprobs": 5, "return_tokens_as_token_ids": True,
                                                     "allowed_token_ids": [ids[length]], "max_tokens": 2, "ignore_eos": True,
                                                     "temperature": 0})
            for i, row in enumerate((length - 1, length)):  # P's row, then D's row
                want = log_softmax(reference["logits"][row])
                for token, got in reply["choices"][0]["logprobs"]["top_logprobs"][i].items():
                    worst = max(worst, abs(got - want[int(token.removeprefix("token_id:"))]))
        assert cluster.handoffs() == 4
    print(f"{family}: largest difference of a log-probability {worst:.4f}")
    assert worst < 0.3  # bfloat16 moves these sharp little models' logits by some percent


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_the_references_where_the_margin_is_clear(family):
    """Teacher-forced, many at once: prompts end anywhere in the reference's own continuation."""
    reference = read_safetensors(GOLDEN / family / "reference.safetensors")
    ids, greedy = [int(i) for i in reference["input_ids"]], [int(i) for i in reference["greedy"]]
    clear = [k for k in range(len(greedy) - 1) if reference["greedy_margin"][k] > CLEAR_MARGIN]
    assert len(clear) > 10
    with Cluster(GOLDEN / family, worker_args=WORKER, router_args=ROUTER) as cluster:
        def first_token(k):
            return cluster.complete(ids + greedy[:k], max_tokens=4, temperature=0, ignore_eos=True)[0][0]

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert list(pool.map(first_token, clear)) == [greedy[k] for k in clear]
        assert cluster.handoffs() > 0


def test_a_burst_of_every_kind_of_sampling_is_served_and_leaves_nothing():
    """Prefill and decode batches of all sizes, n, penalties, bias, log-probabilities; pages return to the pools."""
    rng = np.random.default_rng(20261130)
    kinds = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}, {"temperature": 1, "top_p": 0.9, "top_k": 20, "n": 3},
             {"temperature": 0.7, "frequency_penalty": 0.5, "presence_penalty": 0.2}, {"temperature": 0, "logit_bias": {"5": 3}},
             {"temperature": 0, "logprobs": 5}]
    plan = [([int(t) for t in rng.integers(3, 256, rng.integers(5, 400))],
             {"max_tokens": int(rng.integers(1, 60)), "ignore_eos": True, **kinds[i % len(kinds)]}) for i in range(120)]
    with Cluster(GOLDEN / "llama", worker_args=WORKER, router_args=ROUTER) as cluster:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda item: cluster.complete(item[0], **item[1]), plan))
        for (_, fields), choices in zip(plan, answers):
            assert [len(ids) for ids in choices] == [fields["max_tokens"]] * fields.get("n", 1)
        for name in cluster.workers:
            pages = cluster.pages(name)
            assert pages["used"] == pages["granted"] == pages["quarantined"] == 0, (name, pages)


def test_the_default_model_answers_as_on_the_cpu():
    """Teacher-forced along the CPU's greedy answer: the same token wherever the CPU is sure of it."""
    prompts = ["The capital of France is", "Water boils at a temperature of", "Once upon a time there was a", "def fibonacci(n):"]
    body = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
    told = {"logprobs": 2, "return_token_ids": True, "return_tokens_as_token_ids": True}
    with Cluster(default_model(), threads=0) as cpu:
        plan = []
        for prompt in prompts:
            ids = cpu.post("/tokenize", {"prompt": prompt})["tokens"]
            choice = cpu.post("/v1/completions", {"prompt": ids, **body, **told})["choices"][0]
            print("CPU:", prompt, "->", repr(choice["text"]))
            margins = [max(top.values()) - min(top.values()) for top in choice["logprobs"]["top_logprobs"]]
            plan += [(ids + choice["token_ids"][:k], choice["token_ids"][k]) for k, margin in enumerate(margins) if margin > 1]
    assert len(plan) > 30
    with Cluster(default_model(), worker_args=WORKER, router_args=ROUTER) as gpu:
        for prompt in prompts:
            print("GPU:", prompt, "->", repr(gpu.post("/v1/completions", {"prompt": prompt, **body})["choices"][0]["text"]))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            got = list(pool.map(lambda item: gpu.complete(item[0], max_tokens=2, temperature=0, ignore_eos=True)[0][0], plan))
        assert gpu.handoffs() > 0
    assert got == [token for _, token in plan]
