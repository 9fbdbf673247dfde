"""Clients as users have them, against processes of their own: a router, a prefill and a decode worker of a golden model that speaks text.

Every prompt is handed over. BATON_BIN names other binaries than build/release/bin."""

import pathlib
import sys

import httpx
import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from cluster import GOLDEN, Cluster  # noqa: E402
from text_model import make_text_model  # noqa: E402

MODEL = "text"
HANDOFF_ALWAYS = ["--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0"]


def long_client(name):
    """The command of a client that is heavy to install (scripts/python-env has made its environment)."""
    return pathlib.Path(__file__).resolve().parents[2] / "build/clients" / name / "bin" / name


@pytest.fixture(scope="session")
def text_model(tmp_path_factory):
    return make_text_model(GOLDEN / "llama", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def start(text_model):
    """Makes a cluster with its own settings of the router."""
    def make(*router_args, **options):
        return Cluster(text_model, worker_args=["--kv.pool-mib", "128", *HANDOFF_ALWAYS],
                       router_args=["--served-model-name", MODEL, "--route.local-prompt-tokens", "0", *router_args],
                       **options)

    return make


@pytest.fixture(scope="session")
def cluster(start):
    with start() as running:
        yield running


@pytest.fixture(scope="session")
def api_url(cluster):
    return cluster.url + "/v1"


@pytest.fixture(scope="session")
def http(cluster):
    with httpx.Client(base_url=cluster.url, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def client(api_url):
    return openai.OpenAI(base_url=api_url, api_key="unused", timeout=120, max_retries=0)
