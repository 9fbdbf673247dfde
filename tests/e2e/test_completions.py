"""Text completions: prompts of every shape, stop strings, scoring."""

import openai
import pytest

PROMPT = "The days of the week are Monday, Tuesday, Wednesday,"


def complete(client, model, prompt=PROMPT, **options):
    options = {"temperature": 0, "max_tokens": 16, **options}
    return client.completions.create(model=model, prompt=prompt, **options)


def text_of(stream):
    return "".join(choice.text for chunk in stream for choice in chunk.choices)


def test_answer_and_default_length(client, model):
    answer = client.completions.create(
        model=model, prompt=PROMPT, temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.object == "text_completion"
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_stream_equals_whole(client, model):
    assert text_of(complete(client, model, stream=True)) == complete(client, model).choices[0].text


def test_token_ids_give_what_text_gives(client, http, model):
    ids = http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    as_text = complete(client, model)
    as_ids = complete(client, model, ids)
    assert as_ids.choices[0].text == as_text.choices[0].text
    assert as_ids.usage.prompt_tokens == len(ids) == as_text.usage.prompt_tokens


def test_batch_is_ordered_by_prompt(client, model):
    prompts = ["One, two,", "Red, green,", "A, B,"]
    batch = complete(client, model, prompts, n=2)
    assert [choice.index for choice in batch.choices] == list(range(6))
    for i, prompt in enumerate(prompts):
        single = complete(client, model, prompt)
        assert batch.choices[2 * i].text == single.choices[0].text


def test_stop_strings(client, model):
    full = complete(client, model, max_tokens=40).choices[0].text
    stop = full[len(full) // 2 : len(full) // 2 + 4]
    expected = full[: full.index(stop)]
    for stream in (False, True):
        options = {"max_tokens": 40, "stop": ["no such text", stop], "stream": stream}
        answer = complete(client, model, **options)
        assert (text_of(answer) if stream else answer.choices[0].text) == expected
    answer = complete(client, model, max_tokens=40, stop=stop)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].stop_reason == stop
    kept = complete(client, model, max_tokens=40, stop=stop,
                    extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text == expected + stop


def test_stop_that_never_comes_is_released(client, model):
    full = complete(client, model).choices[0].text
    answer = complete(client, model, stop=full[-3:] + "#never#", stream=True)
    assert text_of(answer) == full


def test_ignore_eos_gives_the_length(client, model):
    answer = complete(client, model, max_tokens=50, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 50


def test_logprobs_and_echo(client, http, model):
    ids = http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    answer = complete(client, model, [ids], max_tokens=1, logprobs=1, echo=True, seed=1234)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(ids) + 1
    assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(ids) + 1
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert answer.choices[0].text.startswith(PROMPT)
    scored = complete(client, model, [ids], max_tokens=0, logprobs=1, echo=True)
    assert scored.choices[0].text == PROMPT
    assert scored.choices[0].logprobs.token_logprobs == logprobs.token_logprobs[:-1]


def test_logprobs_zero_is_the_sampled_token(client, model):
    logprobs = complete(client, model, max_tokens=3, logprobs=0).choices[0].logprobs
    assert all(len(top) == 1 for top in logprobs.top_logprobs)


def test_context_overflow_says_so(client, model):
    with pytest.raises(openai.BadRequestError) as error:
        complete(client, model, max_tokens=10**8)
    assert "maximum context length" in error.value.message
    assert error.value.code == "context_length_exceeded"


@pytest.mark.parametrize("prompt", ["", [], [[]], [-1], [10**7]])
def test_bad_prompts(client, model, prompt):
    with pytest.raises(openai.BadRequestError):
        complete(client, model, prompt)


def test_text_survives_any_split(client, model):
    prompt = "Emoji: 🙂🚀 and Chinese: 你好, 世界. Again: 🙂🚀"
    for seed in range(3):
        options = {"temperature": 1.2, "seed": seed, "max_tokens": 40}
        whole = complete(client, model, prompt, **options).choices[0].text
        assert text_of(complete(client, model, prompt, stream=True, **options)) == whole
