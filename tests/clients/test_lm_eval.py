"""lm-eval to its end on an offline task, and what it reports is what the server says when asked directly."""

import json
import os
import pathlib
import subprocess

import pytest
from conftest import MODEL, long_client

TASKS = pathlib.Path(__file__).resolve().parent / "lm_eval_tasks"
QUESTIONS = [json.loads(line) for line in (TASKS / "questions.jsonl").read_text().splitlines()]


def evaluate(cluster, out, model, task, path, *options, **model_args):
    """The samples of one run of lm-eval, by number of the question."""
    model_args = {"model": MODEL, "base_url": cluster.url + path, "num_concurrent": 8, "max_retries": 1, **model_args}
    argv = [long_client("lm-eval"), "run", "--model", model, "--model_args", ",".join(f"{k}={v}" for k, v in model_args.items()),
            "--tasks", task, "--include_path", TASKS, "--output_path", out, "--log_samples", *options]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(out / "home"), "OPENAI_API_KEY": "unused"}
    done = subprocess.run([str(a) for a in argv], cwd=TASKS, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    (samples,) = pathlib.Path(out).rglob(f"samples_{task}_*.jsonl")
    by_number = {sample["doc_id"]: sample for sample in map(json.loads, samples.read_text().splitlines())}
    assert len(by_number) == len(QUESTIONS)
    return by_number


def tokens(http, text):
    return http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]


def score(http, context, continuation):
    """log p(continuation | context) and whether it is the greedy one, from a prompt scored with no token generated."""
    ids = tokens(http, context + continuation)
    body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 1, "temperature": 0}
    logprobs = http.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == len(ids), "as many as the prompt has tokens, none added"
    begin = len(tokens(http, context))
    pairs = list(zip(logprobs["token_logprobs"], logprobs["top_logprobs"]))[begin:]
    return sum(own for own, _ in pairs), all(own == max(top.values()) for own, top in pairs)


def check_choices(cluster, http, out, **model_args):
    samples = evaluate(cluster, out, "local-completions", "baton_choices", "/v1/completions", **model_args)
    for number, question in enumerate(QUESTIONS):
        got = [(float(value), greedy in (True, "True")) for (value, greedy), in samples[number]["resps"]]
        want = [score(http, f"Question: {question['question']}\nAnswer:", " " + choice) for choice in question["choices"]]
        for (value, greedy), (expected, expected_greedy) in zip(got, want, strict=True):
            assert value == pytest.approx(expected, abs=1e-4) and greedy == expected_greedy


def test_loglikelihood_with_local_tokenizer(cluster, http, text_model, tmp_path):
    check_choices(cluster, http, tmp_path, tokenizer_backend="huggingface", tokenizer=text_model)


def test_loglikelihood_with_the_server_s_tokenizer(cluster, http, tmp_path):
    check_choices(cluster, http, tmp_path, tokenizer_backend="remote")


def test_generate_until(cluster, http, text_model, tmp_path):
    samples = evaluate(cluster, tmp_path, "local-completions", "baton_answers", "/v1/completions", tokenizer_backend="huggingface",
                       tokenizer=text_model)
    for number, question in enumerate(QUESTIONS):
        body = {"prompt": tokens(http, f"Question: {question['question']}\nAnswer:"), "max_tokens": 24, "temperature": 0, "seed": 1234,
                "stop": ["g", "\n\n", "</s>"]}
        assert samples[number]["resps"] == [[http.post("/v1/completions", json=body).json()["choices"][0]["text"]]]


def test_chat_generate_until(cluster, http, tmp_path):
    samples = evaluate(cluster, tmp_path, "local-chat-completions", "baton_answers", "/v1/chat/completions", "--apply_chat_template")
    for number, question in enumerate(QUESTIONS):
        body = {"messages": [{"role": "user", "content": f"Question: {question['question']}\nAnswer:"}], "max_tokens": 24, "temperature": 0,
                "seed": 1234, "stop": ["g", "\n\n"]}
        content = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        assert samples[number]["resps"] == [[content]]
