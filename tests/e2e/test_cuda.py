"""A router, a prefill and a decode worker: pages handed over in GPU memory, answers as the references say. Runs where there is a GPU; with two,
the decode worker has the second."""

import concurrent.futures
import time

import numpy as np
import pytest

from cluster import GOLDEN, ROOT, Cluster, default_model
from gpu import ROUTER, gpu_cluster, gpu_memory_mib, needs_gpu, needs_two_gpus, worker_args
from load import wait_for
from test_engine_failure import FAILURE, fail_in_mid_load
from test_golden_handoff import FAMILIES, read_safetensors

pytestmark = needs_gpu

CLEAR_MARGIN = 0.3  # logits closer than this may change places in bfloat16


def log_softmax(row):
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.sum(np.exp(row - row.max())))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_handoff_on_the_gpu_gives_the_references_logits(family):
    """The second token's distribution is computed by the decode worker from pages that the prefill worker has pushed."""
    reference = read_safetensors(GOLDEN / family / "reference.safetensors")
    ids = [int(i) for i in reference["input_ids"]]
    worst = 0.0
    with gpu_cluster(model=GOLDEN / family) as cluster:
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
    with gpu_cluster(model=GOLDEN / family) as cluster:
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
    with gpu_cluster() as cluster:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda item: cluster.complete(item[0], **item[1]), plan))
        for (_, fields), choices in zip(plan, answers):
            assert [len(ids) for ids in choices] == [fields["max_tokens"]] * fields.get("n", 1)
        for name in cluster.workers:
            pages = cluster.pages(name)
            assert pages["used"] == pages["granted"] == pages["quarantined"] == 0, (name, pages)


@needs_two_gpus
@pytest.mark.parametrize("transport", ["mapped", "nccl"])
def test_pages_cross_from_one_gpu_to_another(transport):
    """Prefill on GPU 0, decode on GPU 1: the same log-probabilities as the reference."""
    reference = read_safetensors(GOLDEN / "llama" / "reference.safetensors")
    ids = [int(i) for i in reference["input_ids"]]
    with gpu_cluster(kvtransfer__require=transport) as cluster:
        reply = cluster.post("/v1/completions", {"prompt": ids[:64], "logprobs": 5, "return_tokens_as_token_ids": True, "max_tokens": 2,
                                                 "allowed_token_ids": [ids[64]], "ignore_eos": True, "temperature": 0})
        want = log_softmax(reference["logits"][64])
        for token, got in reply["choices"][0]["logprobs"]["top_logprobs"][1].items():
            assert abs(got - want[int(token.removeprefix("token_id:"))]) < 0.3
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda n: cluster.complete(ids[:n], max_tokens=20, temperature=0, ignore_eos=True)[0], range(20, 100)))
        assert all(len(answer) == 20 for answer in answers)
        assert cluster.handoffs() > 0
        print([line for line in cluster.workers["prefill-0"].log.read_text().splitlines() if "attach" in line or "transport" in line])


@needs_two_gpus
def test_a_worker_on_the_second_gpu_decodes_with_heads_of_128():
    """Kernels that want more shared memory than is a kernel's by default got it on the GPU that is a thread's first, not on the worker's."""
    with gpu_cluster(model=ROOT / "bench/shapes/llama-3.1-8b", load_format="dummy", cuda_graphs="lazy") as cluster:
        prompt = [1000 + i for i in range(300)]
        assert len(cluster.complete(prompt, max_tokens=20, temperature=0, ignore_eos=True)[0]) == 20
        assert cluster.handoffs() == 1


@pytest.mark.parametrize("transport", ["mapped", pytest.param("nccl", marks=needs_two_gpus)])
@pytest.mark.parametrize("victim", ["prefill-0", "decode-0"])
def test_a_killed_worker_costs_no_request_and_no_gpu_memory(victim, transport):
    """kill -9 in the middle of handoffs, with another of its kind left: replayed, pages home and the dead one's GPU memory free within 2 s.
    Started again, it takes its part again."""
    rng = np.random.default_rng(7)
    plan = [[int(t) for t in rng.integers(3, 256, rng.integers(100, 900))] for _ in range(160)]
    with gpu_cluster(2, 2, kvtransfer__require=transport) as cluster:
        def ask(prompt):
            return len(cluster.complete(prompt, timeout_s=60, max_tokens=100, temperature=0, ignore_eos=True)[0])

        def is_home(name):
            pages = cluster.pages(name)
            return pages["used"] == pages["granted"] == pages["quarantined"] == 0

        with concurrent.futures.ThreadPoolExecutor(32) as pool:  # every pair of workers meets, what is made at first use is made
            assert list(pool.map(ask, plan[:64])) == [100] * 64
        before = gpu_memory_mib()
        dead = cluster.workers.pop(victim)
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            jobs = [pool.submit(ask, prompt) for prompt in plan]
            time.sleep(0.3)
            dead.kill()
            dead.popen.wait()
            assert not all(job.done() for job in jobs), "all had been served already: nothing was tested"
            time.sleep(2)
            assert gpu_memory_mib() < before - 100, "a dead worker's memory is still mapped by its peers"
            assert [job.result() for job in jobs] == [100] * len(plan)
        for name in cluster.workers:
            wait_for(f"all pages of {name} home", lambda name=name: is_home(name), 2)
        cluster.workers[victim] = dead
        dead.start()
        cluster.wait_ready()
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            assert list(pool.map(ask, plan)) == [100] * len(plan)
        assert any(v > 0 for k, v in cluster.worker_metrics(victim).items() if k.startswith("baton_steps_total"))
        for name in cluster.workers:
            wait_for(f"all pages of {name} home", lambda name=name: is_home(name), 2)


@pytest.mark.parametrize("victim", ["prefill-0", "decode-0"])
def test_a_bad_access_on_the_gpu_ends_the_worker_and_costs_no_request(victim):
    """A kernel writes where nothing is: whichever op hears of it first gives its name."""
    answers, _, line, ended_s = fail_in_mid_load(victim, worker_args=worker_args(), router_args=ROUTER)
    assert FAILURE in line
    assert ended_s < 1
    assert all(len(answer) == 24 for answer in answers)


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
    with gpu_cluster(model=default_model()) as gpu:
        for prompt in prompts:
            print("GPU:", prompt, "->", repr(gpu.post("/v1/completions", {"prompt": prompt, **body})["choices"][0]["text"]))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            got = list(pool.map(lambda item: gpu.complete(item[0], max_tokens=2, temperature=0, ignore_eos=True)[0][0], plan))
        assert gpu.handoffs() > 0
    assert got == [token for _, token in plan]
