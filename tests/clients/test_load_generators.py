"""guidellm and aiperf to their end without an error; their mean TTFT and ITL are the server's, by the difference of two scrapes.

The default model, so that a token takes longer than a Python client needs to read it; the golden tokeniser only makes prompts."""

import json
import os
import subprocess

import pytest
from cluster import Cluster, default_model
from conftest import HANDOFF_ALWAYS, long_client

REQUESTS, AT_ONCE, PROMPT_TOKENS, OUTPUT_TOKENS = 40, 2, 900, 64
MODEL = "default"
LIMIT = 0.02


@pytest.fixture(scope="module")
def server():
    with Cluster(default_model(), worker_args=HANDOFF_ALWAYS, router_args=["--served-model-name", MODEL]) as cluster:
        yield cluster


def run(argv, tmp_path, **environment):
    environment = os.environ | {"HF_HOME": str(tmp_path / "home")} | environment
    done = subprocess.run([str(a) for a in argv], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def mean_ms(before, after, name):
    rise = lambda suffix: sum(after[k] - before.get(k, 0) for k in after if k.startswith(name + suffix))  # noqa: E731
    return 1000 * rise("_sum") / rise("_count"), rise("_count")


def compare(server, before, client_ttft_ms, client_itl_ms, requests):
    after = server.router_metrics()
    failed = [key for key in after if key.startswith("baton_http_requests_total") and ('status="4' in key or 'status="5' in key)]
    assert all(after[key] == before.get(key, 0) for key in failed if "/v1" in key), failed
    for name, client, count in (("vllm:time_to_first_token_seconds", client_ttft_ms, requests),
                                ("vllm:inter_token_latency_seconds", client_itl_ms, requests * (OUTPUT_TOKENS - 1))):
        own, seen = mean_ms(before, after, name)
        print(f"{name}: client {client:.2f} ms, server {own:.2f} ms, difference {100 * (client / own - 1):+.2f} %")
        assert seen == count, "the client left requests out, or sent more than it reports"
        assert client == pytest.approx(own, rel=LIMIT)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_guidellm(server, text_model, tmp_path, path):
    before = server.router_metrics()
    run([long_client("guidellm"), "run", "--disable-console-interactive",
         "--backend", json.dumps({"kind": "openai_http", "target": server.url, "model": MODEL, "request_format": path}),
         "--profile", f"kind=concurrent,streams={AT_ONCE}", "--constraint", f"kind=max_requests,count={REQUESTS}",
         "--tokenizer", json.dumps({"kind": "huggingface_auto", "model": str(text_model)}),
         "--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}",
         "--output", "kind=json,path=report.json"], tmp_path, HF_HUB_OFFLINE="1")
    metrics = json.loads((tmp_path / "report.json").read_text())["benchmarks"][0]["metrics"]
    assert metrics["request_totals"] == {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    mean = lambda name: metrics[name]["successful"]["mean"]  # noqa: E731
    compare(server, before, mean("time_to_first_token_ms"), mean("inter_token_latency_ms"), REQUESTS)


@pytest.mark.parametrize("kind", ["completions", "chat"])
def test_aiperf(server, text_model, tmp_path, kind):
    before = server.router_metrics()
    run([long_client("aiperf"), "profile", "--model", MODEL, "--url", server.url, "--endpoint-type", kind, "--streaming",
         "--concurrency", AT_ONCE, "--request-count", REQUESTS, "--tokenizer", text_model, "--use-server-token-count",
         "--synthetic-input-tokens-mean", PROMPT_TOKENS, "--output-tokens-mean", OUTPUT_TOKENS, "--extra-inputs", "ignore_eos:true",
         "--artifact-dir", tmp_path, "--workers-max", 1, "--record-processors", 1, "--ui", "none"], tmp_path)
    (report,) = tmp_path.rglob("profile_export_aiperf.json")
    report = json.loads(report.read_text())
    assert report["request_count"]["avg"] == REQUESTS and not report.get("error_summary")
    compare(server, before, report["time_to_first_token"]["avg"], report["inter_token_latency"]["avg"], REQUESTS)
