"""The chart's rules and dashboards as Prometheus and Grafana get them, and what they ask for."""

import functools
import json
import pathlib
import re
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helm"))
from chart import NAMESPACE, RELEASE, Rendered, ci_values, merged  # noqa: E402

PROMTOOL = ROOT / "build/tools/promtool"
MIN_GBPS = 100
SERIES = re.compile(r"\b((?:baton|vllm:)[a-z:_0-9]*)(?:\{([^}]*)\})?")
MATCHER = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"")
LABELS_OF_PROMETHEUS = {"namespace", "app_kubernetes_io_instance", "instance", "pod", "job", "le"}


@functools.cache
def groups(ttft_ms=500, tpot_ms=50):
    """Rule groups of a release, by the name of their file."""
    values = {"metrics": {"prometheusRule": {"enabled": True}}, "fabric": {"minGbps": MIN_GBPS},
              "slo": {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms}}
    rendered = Rendered(merged(ci_values("cpu"), values)).of_kind("PrometheusRule")
    return {rule["metadata"]["name"]: rule["spec"] for rule in rendered}


def rules():
    return [rule for spec in groups().values() for group in spec["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def write_rules(folder, **slo):
    """One file for promtool and Prometheus."""
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [group for spec in groups(**slo).values() for group in spec["groups"]]}))
    return path


def promtool(*arguments):
    return subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def dashboards():
    """JSON of each, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "helm/baton/files/dashboards").glob("*.json"))}


def panels(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def dashboard_queries():
    """(dashboard, panel, expression with Grafana's variables filled in)."""
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$__rate_interval", "5m")
                yield name, panel["title"], re.sub(r"\$[a-z_]+", ".*", expression)


def series_of(expression):
    """(name, labels that it is asked for by) of each series in an expression."""
    for name, matchers in SERIES.findall(expression):
        yield name, set(MATCHER.findall(matchers or "")) - LABELS_OF_PROMETHEUS


def scope():
    return f'namespace="{NAMESPACE}",app_kubernetes_io_instance="{RELEASE}"'
