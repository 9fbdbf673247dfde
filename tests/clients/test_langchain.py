"""LangChain through langchain-openai: chats and completions, streams, batches, usage, logprobs."""

import asyncio

import openai
import pytest
from conftest import MODEL
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

MESSAGES = [SystemMessage("é"), HumanMessage("the inn 🙂")]


@pytest.fixture
def chat(api_url):
    return ChatOpenAI(base_url=api_url, api_key="unused", model=MODEL, max_tokens=12, seed=5, max_retries=0, timeout=120,
                      extra_body={"ignore_eos": True})


def test_invoke_and_stream(chat):
    answer = chat.invoke(MESSAGES)
    assert answer.content and answer.response_metadata["finish_reason"] in ("stop", "length")
    pieces = list(chat.stream(MESSAGES, stream_usage=True))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.content == answer.content
    assert whole.usage_metadata["output_tokens"] == answer.usage_metadata["output_tokens"] > 0


def test_chain_batch_and_async(chat):
    chain = ChatPromptTemplate.from_messages([("user", "say {word}")]) | chat
    words = [{"word": word} for word in ("the", "inn", "é", "🙂")]
    batch = [answer.content for answer in chain.batch(words)]

    async def run():
        return await asyncio.gather(*(chain.ainvoke(word) for word in words))

    assert [answer.content for answer in asyncio.run(run())] == batch


def test_logprobs(chat):
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke(MESSAGES)
    assert all(len(entry["top_logprobs"]) == 2 for entry in answer.response_metadata["logprobs"]["content"])


def test_stop(chat):
    full = chat.invoke(MESSAGES).content
    assert len(full) > 5
    assert chat.invoke(MESSAGES, stop=[full[3:5]]).content == full[: full.index(full[3:5])]


def test_completions(api_url):
    model = OpenAI(base_url=api_url, api_key="unused", model=MODEL, max_tokens=12, seed=5, temperature=1, max_retries=0,
                   extra_body={"ignore_eos": True})
    assert "".join(model.stream("the inn 🙂")) == model.invoke("the inn 🙂")


def test_errors_reach_the_caller(chat):
    with pytest.raises(openai.BadRequestError):
        chat.invoke(MESSAGES, temperature=-1)
