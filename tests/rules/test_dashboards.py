"""The dashboards are those that scripts/dashboards writes, and reach Grafana's sidecar whole."""

import json
import subprocess

import rules
from chart import Rendered, ci_values, merged


def test_dashboards_are_current():
    subprocess.run([rules.ROOT / "scripts/dashboards", "--check"], check=True)


def test_panels_lie_side_by_side_and_have_queries():
    assert set(rules.dashboards()) == {"slo", "traffic", "ttft", "pools", "pages", "fabric", "router"}
    for name, dashboard in rules.dashboards().items():
        taken = set()
        for panel in rules.panels(dashboard):
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert at["x"] + at["w"] <= 24 and not cells & taken, (name, panel["title"])
            taken |= cells
            assert panel["targets"] and all(target["expr"] for target in panel["targets"])
        assert len({panel["id"] for panel in rules.panels(dashboard)}) == len(list(rules.panels(dashboard)))


def test_every_query_parses(tmp_path):
    records = [{"record": f"q{i}", "expr": expression} for i, (_, _, expression) in enumerate(rules.dashboard_queries())]
    path = tmp_path / "queries.yaml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": records}]}))
    done = rules.promtool("check", "rules", path)
    assert done.returncode == 0, done.stderr


def test_a_config_map_each_with_the_sidecars_label():
    values = {"metrics": {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "Baton"}}}}
    maps = [one for one in Rendered(merged(ci_values("cpu"), values)).of_kind("ConfigMap")
            if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    given = {json.loads(text)["uid"]: json.loads(text) for one in maps for text in one["data"].values()}
    assert given == {dashboard["uid"]: dashboard for dashboard in rules.dashboards().values()}
    assert all(one["metadata"]["annotations"]["grafana_folder"] == "Baton" for one in maps)
    plain = Rendered(ci_values("cpu")).of_kind("ConfigMap", "PrometheusRule")
    assert not [one for one in plain if "dashboard" in one["metadata"]["name"] or one["kind"] == "PrometheusRule"]
