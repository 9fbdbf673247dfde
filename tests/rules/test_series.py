"""What running processes tell at /metrics: all of it is on docs/metrics.md, rules and dashboards ask for nothing else, and the numbers
add up."""

import json
import re
import subprocess
import sys
import time
import urllib.request

import pytest

import rules

sys.path.insert(0, str(rules.ROOT / "tests" / "e2e"))
from cluster import BIN, GOLDEN, Cluster, http_get, parse_metrics  # noqa: E402

PROMPT = list(range(1, 90))
TPOT_EDGES = ["0.001", "0.05", "0.5"]  # of the cluster below, which is told others than the page's
ALWAYS = {"engine", "model_name", "role"}
SUFFIX = re.compile(r"_(bucket|sum|count)$")


class Family:
    def __init__(self, row):
        name, self.type, self.unit, labels, edges, self.help, aliases = row
        self.names = [name.strip("`"), *re.findall(r"`([^`]+)`", aliases)]
        self.labels = set(re.findall(r"`([^`]+)`", labels))
        self.edges = edges.split()


def page_families(program):
    page = (rules.ROOT / "docs/metrics.md").read_text().split(f"## {program}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")]
    families = [Family(row) for row in rows]
    return {name: family for family in families for name in family.names}


def scrape_series(text):
    """(name, labels as a dict, value) of every line; # TYPE lines apart."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (\S+)", line).groups()
            yield name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)


def types(text):
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def base(name, known):
    return name if name in known else SUFFIX.sub("", name)


def wait_until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(GOLDEN / "llama", worker_args=["--decode.local-prefill-tokens", 8],
                 router_args=["--route.local-prompt-tokens", 8, "--metrics.tpot-edges-s", ",".join(TPOT_EDGES)]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def before(cluster):
    """A scrape of the router before its first request."""
    return http_get(cluster.url + "/metrics")


@pytest.fixture(scope="module")
def scrapes(cluster, before):
    """After some traffic: text by program."""
    for i in range(4):
        cluster.complete([i + 1, *PROMPT], max_tokens=6, ignore_eos=True)
    cluster.complete([5, *PROMPT], max_tokens=4, n=3, ignore_eos=True)
    cluster.complete([1, 2, 3], max_tokens=1)
    wait_until(lambda: all(cluster.pages(name)["used"] == 0 for name in cluster.workers))
    return {"baton-router": [http_get(cluster.url + "/metrics")],
            "baton-worker": [http_get(cluster.worker_url(name) + "/metrics") for name in cluster.workers]}


def test_the_page_of_metrics_is_current():
    made = [subprocess.run([BIN / program, "--metrics-markdown"], check=True, capture_output=True, text=True).stdout
            for program in ("baton-router", "baton-worker")]
    assert (rules.ROOT / "docs/metrics.md").read_text() == "".join(made), "docs/metrics.md: make it anew, it says how"


@pytest.mark.parametrize("program", ["baton-router", "baton-worker"])
def test_every_series_is_on_the_page_and_every_family_of_the_page_is_there(scrapes, program):
    families = page_families(program)
    for text in scrapes[program]:
        assert set(types(text)) == set(families)
        for name, kind in types(text).items():
            assert families[name].type == kind, name
        for name, labels, _ in scrape_series(text):
            family = families[base(name, families)]
            want = family.labels | ALWAYS | ({"le"} if name.endswith("_bucket") else set())
            assert set(labels) == want, name


def test_counters_end_in_total_and_buckets_are_cumulative_on_the_edges_of_the_page(scrapes):
    for program, texts in scrapes.items():
        families = page_families(program)
        for text in texts:
            buckets, counts = {}, {}
            for name, labels, value in scrape_series(text):
                family = base(name, families)
                assert (families[family].type == "counter") == name.endswith("_total"), name
                key = (family, *sorted((k, v) for k, v in labels.items() if k != "le"))
                if name.endswith("_bucket"):
                    buckets.setdefault(key, []).append((labels["le"], value))
                elif name.endswith("_count"):
                    counts[key] = value
            for key, rows in buckets.items():
                edges, values = zip(*rows)
                assert edges[-1] == "+Inf"
                assert list(edges[:-1]) in (families[key[0]].edges, TPOT_EDGES), key
                assert list(values) == sorted(values) and values[-1] == counts[key], key


def test_edges_of_a_setting_are_those_of_the_histogram(scrapes):
    text = scrapes["baton-router"][0]
    edges = [labels["le"] for name, labels, _ in scrape_series(text) if name == "baton_tpot_seconds_bucket"]
    assert edges == [*TPOT_EDGES, "+Inf"]


def test_series_exist_before_the_first_request(before):
    values = parse_metrics(before)
    assert [v for k, v in values.items() if k.startswith("baton_ttft_seconds_count")] == [0]
    assert len([k for k in values if k.startswith("vllm:request_success_total")]) == 4
    parts = {labels["part"] for name, labels, _ in scrape_series(before) if name == "baton_ttft_part_seconds_count"}
    assert parts == {"queue", "reserve", "prefill", "transfer", "first_token"}


def total(text, name, **labels):
    return sum(value for series, own, value in scrape_series(text)
               if series == name and all(own.get(key) == want for key, want in labels.items()))


def test_numbers_of_the_router_add_up(scrapes):
    text = scrapes["baton-router"][0]
    requests, tokens, choices = 6, 4 * 6 + 3 * 4 + 1, 4 + 3 + 1
    assert total(text, "vllm:time_to_first_token_seconds_count") == requests
    assert total(text, "vllm:request_success_total") == requests
    assert total(text, "vllm:generation_tokens_total") == tokens
    assert total(text, "vllm:inter_token_latency_seconds_count") == tokens - choices
    assert total(text, "baton_tpot_seconds_count") == choices - 1  # one has a single token
    assert 0 <= total(text, "vllm:prefix_cache_hits_total") <= total(text, "vllm:prefix_cache_queries_total")
    assert total(text, "vllm:num_requests_running") == total(text, "vllm:num_requests_waiting") == 0


def test_parts_of_the_ttft_sum_to_it(scrapes):
    text = scrapes["baton-router"][0]
    for part in ("queue", "reserve", "prefill", "transfer", "first_token"):
        assert total(text, "baton_ttft_part_seconds_count", part=part) == total(text, "baton_ttft_seconds_count")
    parts, whole = total(text, "baton_ttft_part_seconds_sum"), total(text, "baton_ttft_seconds_sum")
    assert parts == pytest.approx(whole, rel=1e-3, abs=1e-4)
    for part in ("queue", "reserve", "prefill"):  # never 0 in all of them
        assert total(text, "baton_ttft_part_seconds_sum", part=part) > 0
    assert total(text, "baton_handoff_gap_seconds_count") >= 4


def test_handoffs_are_counted_with_their_bytes_at_both_ends(scrapes):
    texts = scrapes["baton-worker"]
    pushed = sum(total(text, "baton_handoffs_pushed_total") for text in texts)
    assert pushed == sum(total(text, "baton_handoffs_landed_total") for text in texts) >= 4
    assert pushed == sum(total(text, "baton_handoff_tail_seconds_count") for text in texts)
    assert pushed <= sum(total(text, "baton_reservations_total", answer="granted") for text in texts)
    assert sum(total(text, "baton_handoff_bytes_total") for text in texts) > 0
    assert max(total(text, "baton_transport_slowest_gbps") for text in texts) > 0
    for text in texts:
        assert total(text, "baton_pages") == total(text, "baton_pool_pages") > 0


def test_an_aborted_request_counts_as_every_other_and_leaves_nothing(cluster, scrapes):
    def numbers():
        text = http_get(cluster.url + "/metrics")
        return [total(text, "vllm:request_success_total", finished_reason="abort"), total(text, "vllm:request_success_total"),
                total(text, "vllm:e2e_request_latency_seconds_count"), total(text, "vllm:request_prompt_tokens_count")]

    start = numbers()
    body = json.dumps({"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
    request = urllib.request.Request(cluster.url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.readline()
    wait_until(lambda: numbers()[1] != start[1])
    text = http_get(cluster.url + "/metrics")
    assert total(text, "vllm:num_requests_running") == total(text, "vllm:num_requests_waiting") == 0
    assert numbers()[1:] == [number + 1 for number in start[1:]]


def families_and_labels(scrapes):
    known = {}
    for texts in scrapes.values():
        for text in texts:
            for name, labels, _ in scrape_series(text):
                known.setdefault(name, set()).update(labels)
    return known


def test_rules_and_dashboards_ask_only_for_series_that_exist(scrapes):
    known = families_and_labels(scrapes)
    recorded = {rule["record"] for rule in rules.rules() if "record" in rule}
    queries = [("rule", rule.get("alert") or rule["record"], rule["expr"]) for rule in rules.rules()]
    queries += list(rules.dashboard_queries())
    assert len(queries) > 100
    for where, what, expression in queries:
        found = list(rules.series_of(expression))
        assert found or "ALERTS" in expression, expression
        for name, labels in found:
            if name in recorded:
                assert labels <= {"model_name"}, (where, what, name)
                continue
            assert name in known, (where, what, name)
            assert labels <= known[name], (where, what, name, labels - known[name])


def test_labels_that_queries_group_by_exist(scrapes):
    known = set().union(*families_and_labels(scrapes).values()) | rules.LABELS_OF_PROMETHEUS | {"alertname"}
    queries = [rule["expr"] for rule in rules.rules()] + [query[2] for query in rules.dashboard_queries()]
    for expression in queries:
        for group in re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", expression):
            labels = {label.strip() for label in group.split(",") if label.strip()}
            assert labels <= known, (expression, labels - known)


def test_objectives_of_the_rules_are_edges_of_the_histograms():
    families = page_families("baton-router")
    for rule in rules.rules():
        for what, edge in re.findall(r'baton_(ttft|tpot)_seconds_bucket\{[^}]*le="([^"]+)"', rule["expr"]):
            assert edge in families[f"baton_{what}_seconds"].edges


@pytest.mark.parametrize("flags, message", [
    (["--metrics.ttft-slo-s", "0.3"], "metrics.ttft_slo_s: got 0.3, want one of the histogram's edges: 0.001 0.005"),
    (["--metrics.tpot-slo-s", "0.033"], "metrics.tpot_slo_s: got 0.033, want one of the histogram's edges"),
    (["--metrics.ttft-edges-s", "0.5,0.1"], 'metrics.ttft_edges_s: got "0.1" in "0.5,0.1", want numbers of seconds'),
])
def test_a_router_with_an_objective_between_edges_does_not_start(flags, message):
    argv = [str(BIN / "baton-router"), "--model", str(GOLDEN / "llama"), "--port", "0", *flags]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and message in done.stderr
