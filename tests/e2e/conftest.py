"""Client tests against a running server (BATON_URL=http://127.0.0.1:8000), or against one of their own with the default model."""

import os

import httpx
import openai
import pytest

from cluster import Cluster, default_model


@pytest.fixture(scope="session")
def base_url():
    url = os.environ.get("BATON_URL")
    if url:
        yield url.rstrip("/")
        return
    with Cluster(default_model(), threads=0) as cluster:
        yield cluster.url


@pytest.fixture(scope="session")
def http(base_url):
    with httpx.Client(base_url=base_url, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def client(base_url):
    return openai.OpenAI(base_url=base_url + "/v1", api_key="unused", timeout=120, max_retries=0)


@pytest.fixture(scope="session")
def async_client_of(base_url):
    """Makes clients: each event loop needs its own."""
    return lambda: openai.AsyncOpenAI(
        base_url=base_url + "/v1", api_key="unused", timeout=300, max_retries=0
    )


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


def metric(http, name, **labels):
    """The sum of a series over the labels that are not given."""
    total = 0.0
    for line in http.get("/metrics").text.splitlines():
        if not line.startswith(name + "{"):
            continue
        if all(f'{key}="{value}"' in line for key, value in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total
