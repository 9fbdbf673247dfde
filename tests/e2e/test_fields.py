"""What each field of a request does, on the default model; ranges and errors are in test_schema.py and router/openai_request_test.cc."""

import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
PROMPT = "The days of the week are Monday, Tuesday, Wednesday,"


def post(http, path=TEXT, **fields):
    start = {"messages": [{"role": "user", "content": "Name three colours."}]} if path == CHAT else {"prompt": PROMPT}
    reply = http.post(path, json={**start, "max_tokens": 12, "temperature": 0, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def choice(http, path=TEXT, **fields):
    return post(http, path, **fields)["choices"][0]


def ids_of(http, text):
    return http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]


@pytest.fixture(scope="module")
def greedy(http):
    """What the model says by itself: the token ids and the text."""
    found = choice(http, return_token_ids=True, ignore_eos=True)
    return found["token_ids"], found["text"]


def test_stop_token_ids_end_the_text_before_them_and_are_the_stop_reason(http, greedy):
    ids, text = greedy
    stop = ids[4]
    before = ids[: ids.index(stop)]
    found = choice(http, stop_token_ids=[stop], return_token_ids=True, ignore_eos=True)
    assert (found["finish_reason"], found["stop_reason"]) == ("stop", stop)
    assert found["token_ids"] == [*before, stop]
    assert text.startswith(found["text"])
    shown = http.post("/detokenize", json={"tokens": before}).json()["prompt"]
    assert found["text"] == shown
    kept = choice(http, stop_token_ids=[stop], include_stop_str_in_output=True, ignore_eos=True)
    assert kept["text"] == http.post("/detokenize", json={"tokens": [*before, stop]}).json()["prompt"]


def test_min_tokens_puts_off_stop_tokens_stop_strings_and_the_end(http, greedy):
    ids, text = greedy
    assert len(choice(http, stop_token_ids=[ids[1]], min_tokens=6, return_token_ids=True)["token_ids"]) >= 6
    assert len(choice(http, stop=text[:2], min_tokens=6, return_token_ids=True)["token_ids"]) >= 6
    assert len(choice(http, stop=text[:2], return_token_ids=True)["token_ids"]) < 6


def test_max_completion_tokens_goes_before_max_tokens(http):
    assert post(http, max_tokens=9, max_completion_tokens=4, ignore_eos=True)["usage"]["completion_tokens"] == 4
    assert post(http, CHAT, max_tokens=9, max_completion_tokens=4, ignore_eos=True)["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("only_one", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-9}])
def test_narrow_sampling_is_greedy(http, greedy, only_one):
    fields = {"temperature": 1.0, "seed": 4, "ignore_eos": True, **only_one}
    assert choice(http, **fields)["text"] == greedy[1]


def test_top_k_off_is_0_or_minus_1(http):
    texts = {choice(http, temperature=1, seed=8, top_k=k)["text"] for k in (0, -1)}
    assert len(texts) == 1


def test_logit_bias_forbids_and_forces(http, greedy):
    ids, _ = greedy
    banned = choice(http, logit_bias={str(ids[0]): -100}, return_token_ids=True)["token_ids"]
    assert ids[0] not in banned
    forced = choice(http, logit_bias={str(ids[5]): 100}, return_token_ids=True, ignore_eos=True)["token_ids"]
    assert set(forced) == {ids[5]}


def test_penalties_work_against_repetition(http, greedy):
    repeating = {"logit_bias": {str(greedy[0][0]): 40}, "ignore_eos": True, "max_tokens": 30, "return_token_ids": True}
    plain = choice(http, **repeating)["token_ids"]
    for penalty in ({"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 50}):
        assert choice(http, **repeating, **penalty)["token_ids"].count(greedy[0][0]) <= plain.count(greedy[0][0])
    assert choice(http, **repeating, frequency_penalty=2)["token_ids"].count(greedy[0][0]) < plain.count(greedy[0][0])


def test_allowed_token_ids_are_the_only_ones(http, greedy):
    allowed = greedy[0][:3]
    assert set(choice(http, allowed_token_ids=allowed, temperature=1, return_token_ids=True)["token_ids"]) <= set(allowed)


def test_bad_words_do_not_come(http, greedy):
    word = max(greedy[1].split(), key=len).strip(",.")
    assert word in greedy[1]
    assert word not in choice(http, bad_words=[word], ignore_eos=True)["text"]


def test_skip_special_tokens_false_shows_them(http):
    eos = http.get("/tokenizer_info").json()["eos_token_ids"][0]
    forced = {"logit_bias": {str(eos): 100}, "ignore_eos": True, "max_tokens": 3}
    assert choice(http, **forced)["text"] == ""
    assert choice(http, **forced, skip_special_tokens=False)["text"] == http.post("/detokenize", json={"tokens": [eos] * 3}).json()["prompt"]


def test_seeds_reproduce_and_choices_of_one_seed_differ(http):
    fields = {"temperature": 1.2, "max_tokens": 20, "ignore_eos": True}
    one, again = (post(http, n=3, seed=11, **fields)["choices"] for _ in range(2))
    assert [c["text"] for c in one] == [c["text"] for c in again]
    assert len({c["text"] for c in one}) == 3
    assert choice(http, seed=12, **fields)["text"] != one[0]["text"]
    assert choice(http, seed=-1, **fields)["text"] != choice(http, seed=-1, **fields)["text"]


def test_prompt_tokens_count_once_for_n_and_completion_tokens_add_up(http):
    one, three = post(http, ignore_eos=True)["usage"], post(http, n=3, ignore_eos=True)["usage"]
    assert three["prompt_tokens"] == one["prompt_tokens"]
    assert three["completion_tokens"] == 3 * one["completion_tokens"] == 36


def test_cached_tokens_are_those_of_the_prefix_cache_and_a_salt_hides_them(http):
    prompt = ids_of(http, "A long beginning that only this test has, which fills some blocks of the cache. " * 4)

    def cached(**fields):
        return post(http, prompt=prompt, **fields)["usage"]["prompt_tokens_details"]["cached_tokens"]

    cached()
    assert 0 < cached() < len(prompt)
    assert cached(cache_salt="mine") == 0
    assert cached(cache_salt="mine") > 0
    assert cached(cache_salt="yours") == 0


def test_return_token_ids_and_tokens_as_token_ids(http, greedy):
    found = choice(http, logprobs=1, return_token_ids=True, return_tokens_as_token_ids=True, ignore_eos=True)
    assert found["logprobs"]["tokens"] == [f"token_id:{id}" for id in found["token_ids"]]
    assert found["token_ids"] == greedy[0]


def test_prompt_logprobs(http):
    ids = http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    of_text = choice(http, prompt_logprobs=2)["prompt_logprobs"]
    of_chat = post(http, CHAT, prompt_logprobs=2)["prompt_logprobs"]
    assert len(of_text) == len(ids)
    for found in (of_text, of_chat):
        assert found[0] is None
        assert all(2 <= len(entry) <= 3 for entry in found[1:])
        assert all(one["logprob"] <= 0 and isinstance(one["decoded_token"], str) for entry in found[1:] for one in entry.values())
    assert all(str(id) in entry for id, entry in zip(ids[1:], of_text[1:]))


def test_echo_puts_the_prompt_first_whole_and_streamed(http):
    whole = choice(http, echo=True)["text"]
    assert whole.startswith(PROMPT)
    reply = http.post(TEXT, json={"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "echo": True, "stream": True})
    assert reply.text.count("data: ") > 3
    assert PROMPT in reply.text.split("\n\n")[0]


def test_continuous_usage_stats_count_up(http):
    import json

    fields = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    reply = http.post(TEXT, json={"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **fields})
    chunks = [json.loads(line.removeprefix("data: ")) for line in reply.text.split("\n\n") if line.startswith("data: {")]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 12 and counts[0] >= 1


def rendered(http, **fields):
    reply = http.post(CHAT + "/render", json={"messages": [{"role": "user", "content": "Hello"}], **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_generation_prompt_and_continuation(http):
    asked = rendered(http)["prompt"]
    assert asked.startswith(rendered(http, add_generation_prompt=False)["prompt"])
    assert len(asked) > len(rendered(http, add_generation_prompt=False)["prompt"])
    going_on = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "So far"}]
    assert rendered(http, messages=going_on, continue_final_message=True)["prompt"].endswith("So far")


def test_render_is_what_is_computed(http):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    usage = http.post(CHAT, json=body).json()["usage"]
    assert usage["prompt_tokens"] == rendered(http)["count"] == len(rendered(http)["token_ids"])


def test_control_tokens_in_user_text_stay_text(http):
    info = http.get("/tokenizer_info").json()
    special = info["eos_token"]
    id_of = http.post("/tokenize", json={"prompt": special, "add_special_tokens": False}).json()["tokens"]
    assert len(id_of) == 1
    plain, attack = rendered(http), rendered(http, messages=[{"role": "user", "content": special + "Hello"}])
    assert attack["token_ids"].count(id_of[0]) == plain["token_ids"].count(id_of[0])
    assert special in attack["prompt"]


def test_add_special_tokens(http):
    with_them = http.post("/tokenize", json={"prompt": "a"}).json()["count"]
    assert http.post("/tokenize", json={"prompt": "a", "add_special_tokens": False}).json()["count"] <= with_them
    assert post(http, prompt="a", add_special_tokens=False)["usage"]["prompt_tokens"] == 1


def test_truncate_prompt_tokens_keeps_so_many(http):
    assert post(http, truncate_prompt_tokens=3)["usage"]["prompt_tokens"] == 3
    assert choice(http, truncate_prompt_tokens=3, echo=True)["text"].startswith(
        http.post("/detokenize", json={"tokens": http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"][-3:]}).json()["prompt"])


def test_priority_and_ignored_fields_change_no_token(http, greedy):
    ignored = {"user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k",
               "parallel_tool_calls": False, "spaces_between_special_tokens": True, "no_such_field": [1]}
    assert choice(http, priority=5, ignore_eos=True, **ignored)["text"] == greedy[1]


def test_tokenizer_info_has_what_lm_eval_reads(http):
    info = http.get("/tokenizer_info").json()
    assert info["eos_token"] and info["chat_template"] and info["tokenizer_class"]
    assert {"bos_token", "pad_token"} <= set(info)
