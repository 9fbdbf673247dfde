"""Bugs that users of other servers have reported, as black-box tests named after the report: project, number, what must be."""

import json
import socket
from urllib.parse import urlparse

import openai
import pytest

from conftest import metric
from test_server import wait_until

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = [{"role": "user", "content": "Name three colours."}]


def body_for(path, **fields):
    start = {"messages": USER} if path == CHAT else {"prompt": "The colours are red,"}
    return {**start, "max_tokens": 8, "temperature": 0, **fields}


def events(http, path, **fields):
    """The data of a stream's events; the separators and the end are checked."""
    reply = http.post(path, json=body_for(path, stream=True, **fields))
    assert reply.status_code == 200, reply.text
    pieces = reply.text.split("\n\n")
    assert pieces.pop() == ""
    assert all(piece.startswith("data: ") and "\n" not in piece for piece in pieces)
    assert pieces.pop() == "data: [DONE]"
    return [json.loads(piece.removeprefix("data: ")) for piece in pieces]


def text_of(chunks):
    return "".join(c.get("text", "") + c.get("delta", {}).get("content", "") for chunk in chunks for c in chunk["choices"])


def refused(http, path, param=None, **fields):
    reply = http.post(path, json=body_for(path, **fields))
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    if param:
        assert error["param"] == param
    assert http.get("/livez").status_code == 200
    return error


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_vllm_36379_empty_stream_options_ask_for_no_usage(http, path):
    assert all("usage" not in chunk and chunk["choices"] for chunk in events(http, path, stream_options={}))


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_vllm_7262_vllm_7179_vllm_6083_kubeai_283_usage_is_in_the_last_chunk_alone(http, path):
    *chunks, last = events(http, path, stream_options={"include_usage": True})
    assert last["choices"] == []
    usage = last["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert all(chunk.get("usage") is None and chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_ik_llama_467_every_stream_ends_with_done(http, path):
    assert events(http, path)  # which checks it


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_litellm_28735_litellm_30870_litellm_36553_no_chunk_without_choices_unless_asked(http, path):
    assert all(chunk["choices"] for chunk in events(http, path))


def full_text(http, **fields):
    return http.post(TEXT, json=body_for(TEXT, max_tokens=40, ignore_eos=True, **fields)).json()["choices"][0]["text"]


def test_sglang_11446_omlx_2386_fastchat_1048_no_part_of_a_stop_string_leaks_and_a_near_miss_is_released(http):
    full = full_text(http)
    stop = full[10:22]  # over several tokens
    chunks = events(http, TEXT, max_tokens=40, ignore_eos=True, stop=[stop])
    assert text_of(chunks) == full[: full.index(stop)]
    near_miss = full[10:22] + "#never#"
    assert text_of(events(http, TEXT, max_tokens=40, ignore_eos=True, stop=[near_miss])) == full


def test_vllm_8468_what_was_held_back_comes_out_at_the_length(http):
    full = full_text(http)
    stop = full[-6:] + "#never#"  # begins with the very end
    for stream in (False, True):
        fields = {"max_tokens": 40, "ignore_eos": True, "stop": stop}
        if stream:
            assert text_of(events(http, TEXT, **fields)) == full
        else:
            assert http.post(TEXT, json=body_for(TEXT, **fields)).json()["choices"][0]["text"] == full


def test_vmlx_swift_109_text_behind_a_stop_inside_of_a_token_is_cut(http):
    full = full_text(http)
    word = max(full.split(), key=len)
    stop = word[1:3]  # the token goes on behind it
    assert text_of(events(http, TEXT, max_tokens=40, ignore_eos=True, stop=stop)) == full[: full.index(stop)]


@pytest.mark.parametrize("stream", [False, True])
def test_llama_cpp_11720_sglang_36475_sglang_17031_vllm_54947_a_client_that_leaves_frees_its_request(http, base_url, stream):
    body = json.dumps(body_for(TEXT, max_tokens=1500, ignore_eos=True, stream=stream)).encode()
    url = urlparse(base_url)
    assert wait_until(lambda: metric(http, "vllm:num_requests_running") == 0)
    with socket.create_connection((url.hostname, url.port)) as raw:
        raw.sendall(b"POST %b HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                    % (TEXT.encode(), len(body), body))
        assert wait_until(lambda: metric(http, "vllm:num_requests_running") == 1)
    assert wait_until(lambda: metric(http, "vllm:num_requests_running") == 0)


def test_llama_cpp_4036_mlx_vlm_1076_mlc_llm_1142_ferrox_125_every_delta_is_whole_characters(http):
    emoji = http.post("/tokenize", json={"prompt": "🙂🚀你好é", "add_special_tokens": False}).json()["tokens"]
    # Halves of characters only, so that most tokens end inside of one.
    chunks = events(http, TEXT, allowed_token_ids=sorted(set(emoji)), max_tokens=40, temperature=1.5, seed=7, ignore_eos=True)
    whole = http.post(TEXT, json=body_for(TEXT, allowed_token_ids=sorted(set(emoji)), max_tokens=40, temperature=1.5, seed=7,
                                          ignore_eos=True)).json()["choices"][0]["text"]
    assert text_of(chunks) == whole
    plain = http.post("/detokenize", json={"tokens": emoji}).json()["prompt"]
    assert plain == "🙂🚀你好é"


def test_llama_cpp_11738_llama_cpp_9195_llama_cpp_9210_invalid_utf_8_is_a_400(http):
    kind = {"content-type": "application/json"}
    for raw in (b'{"prompt":"\xff\xfe"}', b'{"prompt":"\xed\xa0\x80"}', b'{"prompt":"\\ud800"}', b'{"prompt":"a","\xc3":1}'):
        assert http.post(TEXT, content=raw, headers=kind).status_code == 400
    assert http.get("/livez").status_code == 200


def test_llamafile_116_imp_712_malformed_json_is_a_400_with_an_error_object(http):
    kind = {"content-type": "application/json"}
    for raw in (b"", b"{", b'{"prompt": }', b"[1,2", b"nonsense", b'{"prompt":"a"}}', b"\x00"):
        for path in (TEXT, CHAT, "/tokenize"):
            reply = http.post(path, content=raw, headers=kind)
            assert reply.status_code == 400
            assert reply.json()["error"]["type"] == "invalid_request_error"


def test_sglang_4097_sglang_5984_sglang_20323_sonar_183_logprobs_are_finite_numbers(http):
    reply = http.post(CHAT, json=body_for(CHAT, logprobs=True, top_logprobs=20, top_k=1, temperature=1,
                                          allowed_token_ids=[100, 101], logit_bias={"100": -100}))
    assert reply.status_code == 200
    for entry in json.loads(reply.text, parse_constant=lambda name: pytest.fail(name))["choices"][0]["logprobs"]["content"]:
        for one in [entry, *entry["top_logprobs"]]:
            assert -9999.0 <= one["logprob"] <= 0


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_llama_cpp_27174_lm_eval_4158_lm_eval_1411_echo_scores_the_prompt(http, max_tokens):
    ids = http.post("/tokenize", json={"prompt": "The sky is blue."}).json()["tokens"]
    reply = http.post(TEXT, json={"prompt": [ids], "max_tokens": max_tokens, "echo": True, "logprobs": 1, "temperature": 0, "seed": 1234})
    logprobs = reply.json()["choices"][0]["logprobs"]
    lengths = {len(logprobs[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    assert lengths == {len(ids) + max_tokens}
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])


def test_vllm_4667_a_prompt_longer_than_the_context_is_told_as_clients_expect(http, client, model):
    context = client.models.list().data[0].max_model_len
    error = refused(http, TEXT, prompt=[100] * context, max_tokens=None)
    assert "maximum context length" in error["message"]
    assert error["code"] == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * context}])
    assert caught.value.code == "context_length_exceeded"


def test_tabbyapi_390_max_tokens_null_is_unset(http):
    reply = http.post(TEXT, json={"prompt": "a", "max_tokens": None, "ignore_eos": True})
    assert reply.json()["usage"]["completion_tokens"] == 16  # the default


def test_modular_6673_max_tokens_beyond_the_context_is_a_400(http):
    for path in (CHAT, TEXT):
        assert refused(http, path, max_tokens=10**6)["code"] == "context_length_exceeded"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_vllm_25054_vllm_9209_tool_choice_is_refused_until_there_are_tools(http, choice):
    refused(http, CHAT, "tool_choice", tool_choice=choice)


def test_litellm_40040_openai_python_3246_continue_13225_openclaw_98575_tools_are_refused_not_half_streamed(http):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    refused(http, CHAT, "tools", tools=tools, stream=True)


@pytest.mark.parametrize("field", [{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strin"}}}},
                                   {"guided_regex": "("}, {"structured_outputs": {"regex": "("}}])
def test_vllm_17248_vllm_17313_vllm_19270_bad_schemas_are_a_400_and_kill_nothing(http, field):
    refused(http, CHAT, next(iter(field)), **field)


def test_llama_cpp_24097_llama_cpp_11988_llama_cpp_27279_no_schema_is_silently_ignored(http):
    refused(http, CHAT, "response_format", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}})
    refused(http, CHAT, "response_format", response_format={"type": "json_object"})


def test_llama_cpp_23463_wrong_types_are_a_400_never_a_500(http):
    for field in ("messages", "max_tokens", "temperature", "stop", "seed", "stream", "logit_bias", "n", "stream_options"):
        for value in ({"a": 1}, [[]], "x" if field not in ("stop",) else 5, 1e308):
            if field == "messages" or value != "x":
                refused(http, CHAT, **{field: value})


def test_mlx_vlm_1818_mlx_vlm_1844_whallm_8_without_a_seed_answers_differ(http):
    def answer():
        return http.post(TEXT, json=body_for(TEXT, temperature=1.5, max_tokens=24, ignore_eos=True)).json()["choices"][0]["text"]

    assert len({answer() for _ in range(4)}) > 1


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_tgi_1544_vllm_4589_sonar_762_ignore_eos_gives_exactly_max_tokens(http, path):
    # Every end-of-sequence token of the model is as likely as can be.
    eos = http.get("/tokenizer_info").json()["eos_token_ids"]
    reply = http.post(path, json=body_for(path, max_tokens=21, ignore_eos=True, logit_bias={str(id): 100 for id in eos})).json()
    assert reply["usage"]["completion_tokens"] == 21
    assert reply["choices"][0]["finish_reason"] == "length"


def test_vllm_50624_vllm_42664_litellm_26501_llama_cpp_13867_reasoning_budgets_are_refused_until_there_is_reasoning(http):
    refused(http, CHAT, "thinking_token_budget", thinking_token_budget=10)
    refused(http, CHAT, "include_reasoning", include_reasoning=False)


def test_vllm_14170_stop_strings_see_all_text_while_reasoning_is_not_told_apart(http):
    """A stop string ends a choice wherever it stands; reasoning is plain text so far."""
    full = full_text(http)
    stop = full[5:9]
    reply = http.post(TEXT, json=body_for(TEXT, max_tokens=40, ignore_eos=True, stop=stop)).json()["choices"][0]
    assert (reply["finish_reason"], reply["stop_reason"]) == ("stop", stop)


def test_cve_2026_34756_n_is_bounded(http):
    for n in (10**9, 10**18, 17, 0, -1):
        refused(http, TEXT, "n", n=n)


def test_cve_2025_48944_tools_with_bad_patterns_kill_nothing(http):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "strin", "pattern": "("}}}]
    refused(http, CHAT, "tools", tools=tools)


def test_cve_2025_6242_no_url_in_a_request_is_fetched(http):
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.5)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/secret"
        part = {"type": "image_url", "image_url": {"url": url}}
        refused(http, CHAT, "messages[0].content", messages=[{"role": "user", "content": [part]}])
        with pytest.raises(TimeoutError):
            trap.accept()


def test_cve_2025_62426_template_kwargs_cannot_replace_what_the_server_gives(http):
    for key in ("tokenize", "messages", "chat_template", "add_generation_prompt"):
        refused(http, CHAT, "chat_template_kwargs", chat_template_kwargs={key: True})
