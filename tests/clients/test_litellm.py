"""LiteLLM through its `openai/` and `text-completion-openai/` providers."""

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no network

import litellm  # noqa: E402
import pytest  # noqa: E402
from conftest import MODEL  # noqa: E402

MESSAGES = [{"role": "user", "content": "the inn 🙂"}]


@pytest.fixture
def call(api_url):
    def completion(**options):
        return litellm.completion(model="openai/" + MODEL, api_base=api_url, api_key="unused", messages=MESSAGES,
                                  **{"max_tokens": 12, "seed": 5, "num_retries": 0, **options})

    return completion


def test_chat_and_stream(call):
    answer = call()
    assert answer.choices[0].message.content and answer.choices[0].finish_reason in ("stop", "length")
    chunks = list(call(stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == answer.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens


def test_rebuilt_stream_equals_whole(call):
    built = litellm.stream_chunk_builder(list(call(stream=True)), messages=MESSAGES)
    assert built.choices[0].message.content == call().choices[0].message.content


def test_logprobs_and_n(call):
    answer = call(n=3, temperature=1, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert all(len(entry.top_logprobs) == 2 for choice in answer.choices for entry in choice.logprobs.content)


def test_text_completion(api_url):
    options = {"model": "text-completion-openai/" + MODEL, "api_base": api_url, "api_key": "unused", "prompt": "the inn 🙂",
               "max_tokens": 12, "seed": 5}
    whole = litellm.text_completion(**options)
    assert whole.choices[0].text == "".join(c.choices[0].text or "" for c in litellm.text_completion(stream=True, **options))


def test_errors_are_recognised(call):
    with pytest.raises(litellm.ContextWindowExceededError):
        call(max_tokens=10**6)
    with pytest.raises(litellm.BadRequestError):
        call(temperature=-1)


def test_many_at_once(api_url):
    async def run():
        return await asyncio.gather(*(litellm.acompletion(model="openai/" + MODEL, api_base=api_url, api_key="unused", messages=MESSAGES,
                                                          max_tokens=12, seed=i, temperature=1) for i in range(20)))

    assert len({answer.choices[0].message.content for answer in asyncio.run(run())}) == 20
