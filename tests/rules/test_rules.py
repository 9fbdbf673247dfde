"""The rules by promtool: they parse, every alert fires when it should and only then, and each has an entry in the runbook."""

import pathlib
import re

import pytest
import yaml

import rules

CASES = yaml.safe_load((pathlib.Path(__file__).parent / "cases.yaml").read_text())
HEALTHY = {
    "baton_ttft_seconds_count": "0+10x{minutes}",
    'baton_ttft_seconds_bucket{le="0.5"}': "0+10x{minutes}",
}
UNITS = {"m": 1, "h": 60}


def with_labels(series):
    """The labels that Prometheus and the process put on it."""
    name, _, labels = series.rstrip("}").partition("{")
    own = dict(re.findall(r'([a-z_]+)="([^"]*)"', labels))
    common = dict(re.findall(r'([a-z_]+)="([^"]*)"', rules.scope()), model_name="m", instance="i")
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in {**common, **own}.items()) + "}"


def family(series):
    return series.partition("{")[0].removesuffix("_bucket").removesuffix("_count")


def promtool_case(case):
    minutes = int(case["at"][:-1]) * UNITS[case["at"][-1]] + 5
    given = {family(series) for series in case["series"] if "app_kubernetes_io_instance" not in series}
    series = {key: value.format(minutes=minutes) for key, value in HEALTHY.items() if family(key) not in given} | case["series"]
    # promtool tells the expression of a test that fails, not the test's name.
    expression = f'group by (alertname) (ALERTS{{alertstate="firing"}})  # <{case["name"]}>'
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in case.get("fires", [])]
    return {
        "interval": step_of(case),
        "input_series": [{"series": with_labels(key), "values": str(value)} for key, value in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": case["at"], "exp_samples": firing}],
    }


def step_of(case):
    return case.get("step", "1m")


def failures_of(cases, folder):
    """What promtool says of all cases with one step; it names those that fail."""
    path = folder / "cases.yaml"
    order = [group["name"] for spec in rules.groups().values() for group in spec["groups"]]
    order.sort(key=lambda name: name != "baton-slo-windows")  # recorded before used: promtool's own order is random
    path.write_text(yaml.safe_dump({"rule_files": [rules.write_rules(folder).name], "evaluation_interval": step_of(cases[0]),
                                    "group_eval_order": order, "tests": [promtool_case(case) for case in cases]}))
    done = rules.promtool("test", "rules", path)
    assert (done.returncode == 0) == ("FAILED" not in done.stdout + done.stderr), done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    steps = {step_of(case) for case in CASES}
    return "".join(failures_of([case for case in CASES if step_of(case) == step], tmp_path_factory.mktemp("rules"))
                   for step in sorted(steps))


def test_the_rules_are_rules(tmp_path):
    done = rules.promtool("check", "rules", rules.write_rules(tmp_path))
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stderr


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_exactly_these_alerts_fire(failures, case):
    assert f"<{case['name']}>" not in failures, failures


def test_a_case_can_fail(tmp_path):
    wrong = {**CASES[0], "fires": []}
    told = failures_of([wrong, CASES[-1]], tmp_path)
    assert f"<{wrong['name']}>" in told and "BatonTtftBudgetBurnFast" in told
    assert f"<{CASES[-1]['name']}>" not in told


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_nearly_does():
    names = {alert["alert"] for alert in rules.alerts()}
    assert len(names) == len(rules.alerts())
    for what in ("fires", "spares"):
        told = {name for case in CASES for name in case.get(what, [])}
        assert told <= names, f"no alerts: {told - names}"
        assert names <= told, f"without a case that {what}: {names - told}"


def test_every_alert_has_an_entry_in_the_runbook():
    anchors = set(re.findall(r"^#### (Baton\w+)$", (rules.ROOT / "docs/operations.md").read_text(), re.MULTILINE))
    names = {alert["alert"] for alert in rules.alerts()}
    assert names == anchors
    for alert in rules.alerts():
        assert alert["annotations"]["runbook_url"].endswith(f"docs/operations.md#{alert['alert']}")
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}


def test_nothing_is_left_to_fill_in_and_every_series_is_of_this_release():
    for rule in rules.rules():
        assert "${" not in str(rule), rule
        for series in re.findall(r"\bbaton_\w+(\{[^}]*\})?", rule["expr"]):
            assert rules.scope() in series, rule["expr"]


def test_objectives_of_the_rules_are_those_of_the_values():
    def edges(**slo):
        text = str(rules.groups(**slo))
        return {what: set(re.findall(rf'baton_{what}_seconds_bucket{{[^}}]*le="([0-9.]+)"', text)) for what in ("ttft", "tpot")}

    assert edges() == {"ttft": {"0.5"}, "tpot": {"0.05"}}
    assert edges(ttft_ms=1000, tpot_ms=25) == {"ttft": {"1"}, "tpot": {"0.025"}}


def test_recorded_series_that_alerts_use_are_recorded():
    recorded = {rule["record"] for rule in rules.rules() if "record" in rule}
    used = {name for rule in rules.rules() for name in re.findall(r"\bbaton:[a-z_:0-9]+", rule["expr"])}
    assert used <= recorded
    assert len(recorded) == 2 * (7 + 4)
