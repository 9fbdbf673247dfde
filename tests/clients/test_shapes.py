"""Requests of random shapes: a stream's pieces put together are the answer given whole, for the same seed; text, ends, usage, logprobs, ids."""

import asyncio
import collections
import json
import os
import random

import httpx
import pytest

SHAPES = 500
AT_ONCE = 32
WORDS = ["the ", "inn ", "a", " and", "é", "naïve", "🙂", "🙂🙂", "漢字", "Ωμέγα", "\n", "  ", "0123", "<|user|>", "</s>", "e\u0301", "\u200d", "🏳️‍🌈"]
ASCII_IDS = list(range(5 + 0x20, 5 + 0x7F))
EMOJI_IDS = [243, 253, 254, 255] + list(range(5 + 0x80, 5 + 0xC0))  # four bytes: the first, with the second and so on, alone


def some_text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 12))) or "x"


def sampling(rng):
    fields = {"seed": rng.randrange(1, 1 << 40), "temperature": rng.choice([0, 0.3, 0.8, 1.0, 1.5, 2.0])}
    fields |= {name: None for name in rng.sample(["top_p", "stop", "n", "logit_bias", "logprobs", "min_tokens", "echo", "user"], 2)}
    maybe = {
        "top_p": lambda: rng.choice([0.1, 0.7, 0.95, 1]), "top_k": lambda: rng.choice([-1, 0, 1, 5, 40]),
        "min_p": lambda: rng.choice([0, 0.02, 0.3]), "presence_penalty": lambda: rng.uniform(-2, 2),
        "frequency_penalty": lambda: rng.uniform(-2, 2), "repetition_penalty": lambda: rng.uniform(0.8, 1.5),
        "logit_bias": lambda: {str(rng.randrange(256)): rng.uniform(-100, 8) for _ in range(rng.randrange(1, 6))} | {"2": rng.uniform(0, 8)},
        "bad_words": lambda: [rng.choice(["the", "Y", "🙂"])],
        "stop_token_ids": lambda: rng.sample(range(5, 256), rng.randrange(1, 25)),
        "ignore_eos": lambda: True, "include_stop_str_in_output": lambda: True, "skip_special_tokens": lambda: False,
        "n": lambda: rng.randrange(2, 5), "user": lambda: "somebody", "return_token_ids": lambda: True,
        "return_tokens_as_token_ids": lambda: True,
    }
    for name, value in maybe.items():
        if rng.random() < 0.2:
            fields[name] = value()
    if rng.random() < 0.4:  # text that is not mostly broken characters; or characters of four bytes and their parts
        fields["allowed_token_ids"] = rng.choice([ASCII_IDS, ASCII_IDS + [2], EMOJI_IDS, ASCII_IDS + EMOJI_IDS + [2]])
    return fields


def lengths(rng):
    longest = rng.choice([1, 2, 7, rng.randrange(3, 48), rng.randrange(3, 48)])
    return {"max_tokens": longest} | ({"min_tokens": rng.randrange(0, longest + 1)} if rng.random() < 0.25 else {})


def shape(rng):
    """Path and body of a request."""
    body = sampling(rng) | lengths(rng)
    if rng.random() < 0.5:
        roles = ["user", "assistant"] * rng.randrange(0, 2) + ["user"]
        body["messages"] = [{"role": role, "content": some_text(rng)} for role in roles]
        if rng.random() < 0.3:
            body["messages"][-1]["content"] = [{"type": "text", "text": some_text(rng)} for _ in range(2)]
        if rng.random() < 0.3:
            body |= {"logprobs": True} | ({"top_logprobs": rng.randrange(0, 6)} if rng.random() < 0.7 else {})
        if rng.random() < 0.3:
            body["max_completion_tokens"] = body.pop("max_tokens")
        return "/v1/chat/completions", body
    ids = lambda: [rng.randrange(5, 256) for _ in range(rng.randrange(1, 20))]  # noqa: E731
    body["prompt"] = rng.choice([lambda: some_text(rng), ids, lambda: [some_text(rng) for _ in range(2)], lambda: [ids(), ids()]])()
    if rng.random() < 0.3:
        body["logprobs"] = rng.randrange(0, 6)
    if rng.random() < 0.3:
        body["echo"] = True
        if rng.random() < 0.3:
            body |= {"max_tokens": 0, "min_tokens": 0}
    return "/v1/completions", body


def with_stops(rng, body, texts):
    """Stop strings: pieces of what was written without them, near misses of such pieces, and others."""
    stops = []
    for _ in range(rng.randrange(1, 4)):
        text = rng.choice(texts)
        at = rng.randrange(len(text)) if text else 0
        piece = text[at:at + rng.randrange(1, 9)]
        stops.append(rng.choice([piece, piece, piece + "never", "never", "e", "🙂"]) or "x")
    return body | {"stop": stops[0] if len(stops) == 1 and rng.random() < 0.5 else stops}


class Answer:
    """What counts of an answer, by choice."""

    def __init__(self):
        self.texts, self.ends, self.logprobs, self.ids, self.usage = {}, {}, {}, {}, None

    def add(self, choice, text):
        index = choice["index"]
        self.texts[index] = self.texts.get(index, "") + (text or "")
        if choice["finish_reason"] is not None:
            assert index not in self.ends, f"choice {index} ended twice"
            self.ends[index] = (choice["finish_reason"], choice["stop_reason"])
        for key, values in (choice["logprobs"] or {}).items():
            self.logprobs.setdefault((index, key), []).extend(values or [])
        self.ids.setdefault(index, []).extend(choice.get("token_ids") or [])

    def facts(self):
        usage = {key: self.usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
        return {"text": self.texts, "ends": self.ends, "logprobs": self.logprobs, "ids": self.ids, "usage": usage}


async def whole(http, path, body):
    reply = await http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    answer = Answer()
    for choice in reply.json()["choices"]:
        answer.add(choice, choice["message"]["content"] if "message" in choice else choice["text"])
    answer.usage = reply.json()["usage"]
    return answer


def take_chunk(answer, chunk, roles):
    """One event of a stream, by the rules that clients rely on."""
    for choice in chunk["choices"]:
        if "text" in choice:
            answer.add(choice, choice["text"])
            continue
        if choice["index"] not in roles:
            roles.add(choice["index"])
            assert choice["delta"] == {"role": "assistant", "content": ""} and choice["finish_reason"] is None
            continue
        content = choice["delta"].get("content")
        assert content != "" and "role" not in choice["delta"], "no piece is empty, the role comes once"
        assert content or choice["finish_reason"], "a piece has text or ends its choice"
        answer.add(choice, content)


async def streamed(http, path, body, every_usage):
    options = {"include_usage": True, "continuous_usage_stats": every_usage}
    answer, heads, roles, done = Answer(), set(), set(), False
    async with http.stream("POST", path, json=body | {"stream": True, "stream_options": options}) as reply:
        assert reply.status_code == 200, await reply.aread()
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for line in reply.aiter_lines():
            if not line:
                continue
            assert line.startswith("data: ") and not done, line
            if line == "data: [DONE]":
                done = True
                continue
            chunk = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk and answer.usage is None, "nothing comes after the usage"
            heads.add((chunk["id"], chunk["created"], chunk["model"], chunk["object"]))
            assert (chunk.get("usage") is not None) == (every_usage or not chunk["choices"])
            if not chunk["choices"]:
                answer.usage = chunk["usage"]
            take_chunk(answer, chunk, roles)
    assert done and len(heads) == 1
    return answer


def kinds(path, body, answer):
    """What a shape has shown, so that the test can tell that the shapes show everything."""
    ends = {"length" if end == "length" else "stop string" if isinstance(by, str) else "stop id" if by else "eos"
            for end, by in answer.ends.values()}
    text = "".join(answer.texts.values())
    kinds = ends | {path} | {key for key in ("n", "echo", "logprobs", "min_tokens", "stop", "return_token_ids") if body.get(key)}
    return kinds | ({"broken characters"} if "\ufffd" in text else set()) | ({"whole characters"} if "🙂" in text else set())


async def check(http, number, seed, failures, gate, seen):
    rng = random.Random(f"{seed}/{number}")
    path, body = shape(rng)
    async with gate:
        try:
            if rng.random() < 0.5:
                probe = await whole(http, path, body)
                body = with_stops(rng, body, list(probe.texts.values()))
            first, second = await asyncio.gather(whole(http, path, body), streamed(http, path, body, rng.random() < 0.5))
            assert second.facts() == first.facts()
            assert len(first.ends) == len(first.texts)
            seen.update(kinds(path, body, first))
            assert first.usage["total_tokens"] == first.usage["prompt_tokens"] + first.usage["completion_tokens"]
        except (AssertionError, httpx.HTTPError, KeyError, ValueError) as error:
            failures.append(f"shape {number}: {path} {json.dumps(body)}: {error!r}")


def test_stream_equals_whole_for_random_shapes(cluster):
    seed = int(os.environ.get("BATON_SEED", random.SystemRandom().randrange(1 << 30)))
    print("BATON_SEED", seed)
    failures, seen = [], collections.Counter()

    async def run():
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=cluster.url, timeout=300, limits=limits) as http:
            gate = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(check(http, i, seed, failures, gate, seen) for i in range(SHAPES)))

    asyncio.run(run())
    print(dict(seen))
    if failures:
        pytest.fail(f"BATON_SEED={seed}: {len(failures)} of {SHAPES} shapes, the first:\n" + "\n".join(failures[:3]))
    assert len(seen) == 14 and min(seen.values()) >= 2, f"BATON_SEED={seed}: the shapes did not show everything: {seen}"


def test_a_line_end_of_unicode_does_not_cut_an_event(http):
    """Clients that split lines as Python does take U+0085, U+2028 and U+2029 for ends of lines, as httpx and what stands on it."""
    text = "a\u2028b\u2029c\u0085d"
    body = {"prompt": text, "echo": True, "max_tokens": 1, "stream": True}
    with http.stream("POST", "/v1/completions", json=body) as reply:
        lines = [line for line in reply.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines), lines
    assert json.loads(lines[0].removeprefix("data: "))["choices"][0]["text"].startswith(text)
