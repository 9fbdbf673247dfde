"""Small routes, errors, disconnects, many clients at once, metrics."""

import asyncio
import json
import socket
import time
from urllib.parse import urlparse

from conftest import metric

LONG = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True}


def wait_until(condition, seconds=10):
    """Polls what only /metrics can tell."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def idle(http):
    running = metric(http, "vllm:num_requests_running")
    return running == 0 and metric(http, "vllm:num_requests_waiting") == 0


def test_probes(http):
    for path in ("/health", "/livez", "/readyz", "/ping"):
        assert http.get(path).status_code == 200
    assert http.get("/version").json()["version"]


def test_models(client, model):
    entry = client.models.retrieve(model)
    assert entry.id == model
    assert entry.max_model_len > 0


def test_unknown_path_and_method(http):
    for response, status in ((http.get("/no/such"), 404), (http.get("/v1/completions"), 405)):
        assert response.status_code == status
        assert response.json()["error"]["message"]


def test_tokenize_round_trip(http):
    text = "Hello,  world! 🙂 naïve café\n\n    return x"
    reply = http.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
    assert reply["count"] == len(reply["tokens"]) == len(reply["token_strs"])
    assert http.post("/detokenize", json={"tokens": reply["tokens"]}).json()["prompt"] == text


def test_bad_bodies(http):
    kind = {"content-type": "application/json"}
    for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"prompt": NaN}', b'{"a":' + b"[" * 50000):
        response = http.post("/v1/completions", content=body, headers=kind)
        assert response.status_code == 400, body[:20]
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    response = http.post("/v1/completions", content=b"{}", headers={"content-type": "text/plain"})
    assert response.status_code == 400


def test_request_id_is_echoed(http, model):
    response = http.post("/v1/completions", headers={"x-request-id": "my-id"},
                         json={"model": model, "prompt": "a", "max_tokens": 1})
    assert response.headers["x-request-id"] == "my-id"
    assert response.json()["id"] == "cmpl-my-id"


def test_cors(http):
    response = http.options("/v1/chat/completions", headers={"origin": "http://ui"})
    assert response.status_code in (200, 204)
    assert response.headers["access-control-allow-origin"] == "*"


def test_metrics_count_a_request(http, model):
    def numbers():
        return [
            metric(http, "vllm:time_to_first_token_seconds_count"),
            metric(http, "vllm:inter_token_latency_seconds_count"),
            metric(http, "vllm:generation_tokens_total"),
            metric(http, "vllm:request_success_total", finished_reason="length"),
        ]

    assert wait_until(lambda: idle(http))
    before = numbers()
    http.post("/v1/completions", json={"prompt": "Count:", "max_tokens": 9, "ignore_eos": True})
    assert [after - b for after, b in zip(numbers(), before)] == [1, 8, 9, 1]


def test_disconnect_frees_everything(http):
    aborted = metric(http, "vllm:request_success_total", finished_reason="abort")
    with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                break
    assert wait_until(lambda: idle(http))
    assert metric(http, "vllm:request_success_total", finished_reason="abort") == aborted + 1


def test_disconnect_without_stream(http, base_url):
    body = json.dumps(LONG).encode()
    url = urlparse(base_url)
    with socket.create_connection((url.hostname, url.port)) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: t\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert wait_until(lambda: metric(http, "vllm:num_requests_running") == 1)
    assert wait_until(lambda: idle(http))


def test_concurrency_changes_no_token(client, async_client_of, model):
    def options(i):
        return {
            "model": model,
            "prompt": f"Fact number {i}: the",
            "max_tokens": 24,
            "temperature": 0.8 if i % 2 else 0,
            "seed": i,
        }

    async def all_at_once():
        async with async_client_of() as many:
            answers = await asyncio.gather(
                *(many.completions.create(**options(i)) for i in range(32))
            )
        return [answer.choices[0].text for answer in answers]

    together = asyncio.run(all_at_once())
    alone = [client.completions.create(**options(i)).choices[0].text for i in range(32)]
    assert together == alone


def test_concurrent_streams(async_client_of, model):
    async def one(many, i):
        text, tokens = "", 0
        stream = await many.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": f"Tell me about the number {i}."}],
            max_tokens=16,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
            if chunk.usage:
                tokens = chunk.usage.completion_tokens
        return text, tokens

    async def all_at_once():
        async with async_client_of() as many:
            return await asyncio.gather(*(one(many, i) for i in range(32)))

    for text, tokens in asyncio.run(all_at_once()):
        assert 0 < tokens <= 16
        assert text or tokens == 1
