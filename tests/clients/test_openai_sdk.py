"""The openai SDK: chats and completions, streams, logprobs, many at once, retries, time-outs, cancelling."""

import asyncio
import threading
import time

import openai
import pytest
from conftest import MODEL

MESSAGES = [{"role": "user", "content": "the inn 🙂"}]
LONG = {"max_tokens": 3000, "temperature": 1, "extra_body": {"ignore_eos": True}}


def chat(client, **options):
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, **{"max_tokens": 12, "seed": 5, **options})


def complete(client, **options):
    return client.completions.create(model=MODEL, prompt="the inn 🙂", **{"max_tokens": 12, "seed": 5, **options})


def eventually(condition, what, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def aborted(cluster):
    return sum(value for key, value in cluster.router_metrics().items()
               if key.startswith("vllm:request_success_total") and 'finished_reason="abort"' in key)


def is_free(cluster):
    """No request is left, neither at the router nor in a page."""
    metrics = cluster.router_metrics()
    busy = sum(v for k, v in metrics.items() if k.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting")))
    return busy == 0 and all(cluster.pages(name)["used"] == 0 for name in cluster.workers)


def test_models(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client):
    answer = chat(client)
    assert answer.object == "chat.completion" and answer.model == MODEL
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(client):
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == chat(client).choices[0].message.content
    assert chunks[-1].usage.completion_tokens == chat(client).usage.completion_tokens


def test_chat_stream_helper_accumulates(client):
    full = chat(client).choices[0].message.content
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=12, seed=5, stop=full[4:6]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()  # raises for an answer that ended by its length
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == full[: full.index(full[4:6])]


def test_completion_and_stream(client):
    answer = complete(client)
    assert answer.object == "text_completion"
    assert "".join(c.choices[0].text for c in complete(client, stream=True)) == answer.choices[0].text


def test_chat_logprobs(client):
    content = chat(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert content and all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in content)
    streamed = [entry for chunk in chat(client, logprobs=True, top_logprobs=3, stream=True)
                for entry in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])]
    assert streamed == content


def test_completion_logprobs_and_echo(client):
    logprobs = complete(client, logprobs=2, echo=True).choices[0].logprobs
    assert logprobs.tokens[0] == "<s>" and logprobs.token_logprobs[0] is None
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset)


def test_n_gives_distinct_choices(client):
    answer = chat(client, n=4, temperature=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in answer.choices}) == 4
    again = chat(client, n=4, temperature=1)
    assert again.choices == answer.choices


def test_raw_response_has_the_request_id(client):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=2,
                                                           extra_headers={"x-request-id": "mine-1"})
    assert raw.headers["x-request-id"] == "mine-1" and raw.parse().id == "chatcmpl-mine-1"


def test_errors_have_the_sdk_s_types(client):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, temperature=-1)
    assert error.value.param == "temperature" and error.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, max_tokens=10**6)
    assert error.value.code == "context_length_exceeded"


def test_a_hundred_at_once(api_url):
    async def run():
        async with openai.AsyncOpenAI(base_url=api_url, api_key="unused", timeout=300, max_retries=0) as client:
            async def one(i):
                options = {"model": MODEL, "messages": MESSAGES, "max_tokens": 24, "temperature": 1, "seed": i}
                if i % 2:
                    return (await client.chat.completions.create(**options)).choices[0].message.content
                stream = await client.chat.completions.create(stream=True, **options)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            first = await asyncio.gather(*(one(i) for i in range(100)))
            assert len(set(first)) > 90
            assert [await one(i) for i in range(4)] == first[:4], "a seed's answer depends on who else is there"

    asyncio.run(run())


def test_timeout_gives_up_and_frees(cluster, client):
    before = aborted(cluster)
    with pytest.raises(openai.APITimeoutError):
        chat(client.with_options(timeout=0.2), n=16, **LONG)
    eventually(lambda: aborted(cluster) > before, "a client that gave up is not noticed")
    eventually(lambda: is_free(cluster), "pages of a client that gave up stay in use")


def test_closed_stream_frees(cluster, client):
    before = aborted(cluster)
    stream = chat(client, stream=True, n=8, **LONG)
    next(iter(stream))
    stream.close()
    eventually(lambda: aborted(cluster) == before + 1, "a closed stream is not noticed")
    eventually(lambda: is_free(cluster), "pages of a closed stream stay in use")


def test_cancelled_task_frees(cluster, api_url):
    before = aborted(cluster)

    async def run():
        async with openai.AsyncOpenAI(base_url=api_url, api_key="unused", max_retries=0) as client:
            task = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=MESSAGES, n=8, **LONG))
            while not any(v for k, v in cluster.router_metrics().items() if k.startswith("vllm:num_requests_running")):
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    eventually(lambda: aborted(cluster) == before + 1, "a cancelled task is not noticed")
    eventually(lambda: is_free(cluster), "pages of a cancelled task stay in use")


def test_429_is_retried_until_served(start):
    """More than the queue holds: those refused come again after Retry-After."""
    with start("--route.queue-max", "2") as cluster:
        async def run():
            async with openai.AsyncOpenAI(base_url=cluster.url + "/v1", api_key="unused", timeout=300, max_retries=50) as client:
                return await asyncio.gather(*(client.completions.create(model=MODEL, prompt=[7] * 2000, max_tokens=1) for _ in range(16)))

        answers = asyncio.run(run())
        assert len(answers) == 16
        refused = sum(v for k, v in cluster.router_metrics().items() if k.startswith("baton_requests_rejected_total"))
        assert refused > 0, "nothing was refused: the test shows nothing"


def test_503_is_retried_until_served(start):
    """No worker decodes for a while: 503 with Retry-After, then served."""
    with start("--route.queue-wait-ms", "200") as cluster:
        client = openai.OpenAI(base_url=cluster.url + "/v1", api_key="unused", timeout=120, max_retries=0)
        decode = cluster.workers["decode-0"]
        decode.stop()
        eventually(lambda: cluster.connected_workers() == 1, "the router has not seen the worker go")
        with pytest.raises(openai.InternalServerError) as error:
            chat(client)
        assert error.value.status_code == 503 and int(error.value.response.headers["retry-after"]) >= 1
        later = threading.Timer(1, decode.start)
        later.start()
        assert chat(client.with_options(max_retries=30)).choices[0].message.content
        later.join()
