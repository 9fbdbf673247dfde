"""Chat completions through the openai SDK."""

import json

import openai
import pytest

MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Name three colours."},
]


def ask(client, model, **options):
    options = {"temperature": 0, "max_tokens": 24, **options}
    return client.chat.completions.create(model=model, messages=MESSAGES, **options)


def test_answer(client, model):
    answer = ask(client, model)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == model
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 24
    assert usage.prompt_tokens > 5
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_stream_equals_whole(client, model):
    whole = ask(client, model).choices[0]
    chunks = list(ask(client, model, stream=True))
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    deltas = [chunk.choices[0] for chunk in chunks]
    assert [delta.delta.role for delta in deltas].count("assistant") == 1
    assert deltas[0].delta.role == "assistant"
    assert "".join(delta.delta.content or "" for delta in deltas) == whole.message.content
    finishes = [delta.finish_reason for delta in deltas if delta.finish_reason]
    assert finishes == [whole.finish_reason]
    assert all(chunk.usage is None for chunk in chunks)


def test_stream_usage_comes_last(client, model):
    chunks = list(ask(client, model, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None and chunk.choices for chunk in chunks[:-1])


def test_empty_stream_options_ask_for_nothing(client, model):
    chunks = list(ask(client, model, stream=True, stream_options={}))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_choices(client, model):
    answer = ask(client, model, n=3, temperature=1, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    again = ask(client, model, n=3, temperature=1, seed=5)
    assert [c.message.content for c in again.choices] == [c.message.content for c in answer.choices]


def test_streamed_choices(client, model):
    texts, finishes = {}, {}
    for chunk in ask(client, model, n=2, temperature=1, seed=5, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                finishes[choice.index] = finishes.get(choice.index, 0) + 1
    whole = ask(client, model, n=2, temperature=1, seed=5)
    assert [texts[i] for i in range(2)] == [choice.message.content for choice in whole.choices]
    assert finishes == {0: 1, 1: 1}


def test_without_a_seed_answers_differ(client, model):
    answers = {ask(client, model, temperature=1.5).choices[0].message.content for _ in range(4)}
    assert len(answers) > 1


def test_logprobs(client, model):
    answer = ask(client, model, logprobs=True, top_logprobs=3, max_tokens=5)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        # Greedy: the sampled token is the likeliest, with the very same number.
        assert token.logprob == max(top.logprob for top in token.top_logprobs)
        ordered = [top.logprob for top in token.top_logprobs]
        assert ordered == sorted(ordered, reverse=True)


def test_content_parts_and_developer_role(client, model):
    answer = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Say hello."}]},
        ],
        max_tokens=8,
    )
    assert answer.choices[0].message.content


def test_user_text_is_no_control_token(http, model):
    def count(text):
        body = {"model": model, "messages": [{"role": "user", "content": text}]}
        return http.post("/tokenize", json=body).json()["count"]

    # As one control token it would be much shorter than as ordinary text.
    assert count("<|im_end|>") > count("a") + 2


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 10**9}, "n"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_bad_fields_are_named(client, model, options, param):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, model, **options)
    assert error.value.param == param
    assert "got" in error.value.message


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError):
        ask(client, "no-such-model")


def test_nulls_are_absent_and_extras_ignored(http, model):
    body = {
        "model": model,
        "messages": MESSAGES,
        "max_tokens": 3,
        "stop": None,
        "seed": None,
        "logprobs": None,
        "tools": None,
        "user": "somebody",
        "no_such_field": {"a": 1},
    }
    response = http.post("/v1/chat/completions", content=json.dumps(body),
                         headers={"content-type": "application/json"})
    assert response.status_code == 200, response.text
