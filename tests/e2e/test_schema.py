"""router/openapi.json against a running router: what is served is what is described, and generated requests find no 5xx and no hang."""

import json
import pathlib
import re
import sys

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))
from cluster import GOLDEN, Cluster  # noqa: E402
from text_model import make_text_model  # noqa: E402

DESCRIPTION = json.loads((ROOT / "router/openapi.json").read_text())
SCHEMAS = DESCRIPTION["components"]["schemas"]
# Files that read fields of requests, and those fields of theirs that are no top-level ones.
READERS = ["openai_request.cc", "openai_sampling.cc", "openai_messages.cc", "text_api.cc"]
NESTED = {"include_usage", "continuous_usage_stats"}
CONTEXT_TOKENS = 96  # so that a request without max_tokens is done soon


@pytest.fixture(scope="session")
def base_url(tmp_path_factory):
    model = make_text_model(GOLDEN / "llama", tmp_path_factory.mktemp("model"))
    workers = ["--kv.pool-mib", "32", "--context-len", CONTEXT_TOKENS]
    with Cluster(model, worker_args=workers, router_args=["--served-model-name", "text"]) as cluster:
        yield cluster.url


@pytest.fixture(scope="session")
def client(base_url):
    with httpx.Client(base_url=base_url, timeout=30) as client:
        yield client


# The paths without /v1 are the same handlers.
api = schemathesis.openapi.from_dict(DESCRIPTION).exclude(path_regex="^/(chat/completions|completions|models)")


def fields_of(name):
    return SCHEMAS[name]["properties"]


def body_of(path, **fields):
    least = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {"prompt": "a"}
    return {**least, "max_tokens": 1, **fields}


def validate(name, value):
    jsonschema.Draft202012Validator({"$ref": "#/components/schemas/" + name, **DESCRIPTION}).validate(value)


def test_what_is_served_is_the_file(client):
    assert client.get("/openapi.json").json() == DESCRIPTION


def test_every_field_that_the_code_reads_is_described():
    read = set()
    for name in READERS:
        text = (ROOT / "router" / name).read_text()
        read |= set(re.findall(r'fields_?\.(?:boolean|integer|integer64|number|text|token_ids|find)\(\s*"(\w+)"', text))
        for names in re.findall(r"for \(const char\* name : \{([^}]*)\}", text) + re.findall(r"kNotSupportedYet\[\] = \{([^}]*)\}", text):
            read |= set(re.findall(r'"(\w+)"', names))
    described = set().union(*(fields_of(name) for name in ("ChatRequest", "CompletionRequest", "TokenizeRequest")))
    special_tokens = {"bos_token", "eos_token", "pad_token"}  # of an answer
    assert len(read) > 50
    assert read - described - NESTED - special_tokens - {"tokens"} == set()


WRONG = [{"no": "such value"}, "no such value", -(10**12), 10**12, [[{}]], True, 0.5]


@pytest.mark.parametrize(("path", "name"), [("/v1/chat/completions", "ChatRequest"), ("/v1/completions", "CompletionRequest")])
def test_what_the_description_forbids_is_refused_and_named(client, path, name):
    refused = 0
    for field, schema in fields_of(name).items():
        validator = jsonschema.Draft202012Validator({**schema, "components": DESCRIPTION["components"]})
        for value in WRONG:
            if validator.is_valid(value):
                continue
            reply = client.post(path, json=body_of(path, **{field: value}))
            assert reply.status_code in (400, 404), f"{field}={value!r}: {reply.status_code} {reply.text[:300]}"
            assert reply.json()["error"]["param"].split("[")[0] == field, reply.text
            validate("Error", reply.json())
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(("path", "name"), [("/v1/chat/completions", "ChatRequest"), ("/v1/completions", "CompletionRequest")])
def test_null_is_absent_for_every_field_that_may_be_absent(client, path, name):
    nulls = {field: None for field in fields_of(name) if field not in SCHEMAS[name]["required"]}
    reply = client.post(path, json={**nulls, **body_of(path)})
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_answers_are_as_described(client, path):
    name = "ChatAnswer" if "chat" in path else "CompletionAnswer"
    for fields in ({}, {"n": 2, "max_tokens": 5}, {"logprobs": True, "top_logprobs": 2} if "chat" in path else {"logprobs": 2, "echo": True},
                   {"prompt_logprobs": 1}, {"return_token_ids": True, "return_workers": True}, {"stop_token_ids": list(range(256))}):
        reply = client.post(path, json=body_of(path, **fields))
        assert reply.status_code == 200, reply.text
        validate(name, reply.json())


@api.parametrize()
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_generated_requests_find_no_5xx_no_hang_and_no_answer_undescribed(case, base_url):
    # What one field asks of another (stream_options wants stream) is not in the description, so that good fields may be refused.
    case.call_and_validate(base_url=base_url, timeout=30, excluded_checks=[positive_data_acceptance])


def test_docs_name_tests_that_exist_and_every_field():
    page = (ROOT / "docs/api.md").read_text()
    rows = [row for row in page.splitlines() if row.startswith("|")]
    python = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    cases = "".join(path.read_text() for path in (ROOT / "router").glob("*_test.cc"))
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 60
    assert [name for name in named if f"def {name}(" not in python] == []
    # Long names are broken over lines in the source.
    in_one_line = re.sub(r'"\s*"', "", cases)
    quoted = {name for row in rows for name in re.findall(r'"([^"]+)"', row.split("|")[-2]) if " " in name or name == "limits"}
    assert len(quoted) > 25
    assert [name for name in quoted if f'"{name}"' not in in_one_line] == []
    for name in ("ChatRequest", "CompletionRequest"):
        assert [field for field in fields_of(name) if f"`{field}`" not in page and not field.startswith("guided_")] == []
