"""From one version of the chart to the next: selectors cannot change, and what has not changed does not restart."""

import shutil

import helm_python
import pytest

from chart import CHART, Rendered, ci_files, identity, load_yaml

IMMUTABLE = {
    "Deployment": ("spec", "selector"),
    "Service": ("spec", "clusterIP"),
    "ComputeDomain": ("spec",),
    "RoleBinding": ("roleRef",),
}


@pytest.fixture(scope="module")
def next_chart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("next") / "baton"
    shutil.copytree(CHART, folder)
    metadata = (folder / "Chart.yaml").read_text()
    assert "\nversion: " in metadata and "\nappVersion: " in metadata
    lines = [("version: 9.8.7" if line.startswith("version:") else line) for line in metadata.splitlines()]
    (folder / "Chart.yaml").write_text("\n".join(lines) + "\n")
    with helm_python.Chart.load(folder) as chart:
        yield chart


def immutable(rendered):
    result = {}
    for one in rendered.objects:
        part = one
        for key in IMMUTABLE.get(one["kind"], ()):
            part = part.get(key)
        if one["kind"] in IMMUTABLE:
            result[identity(one)] = part
    return result


@pytest.mark.parametrize("path", ci_files(), ids=lambda path: path.stem)
def test_a_new_chart_changes_no_selector_and_restarts_no_pod(path, next_chart):
    values = load_yaml(path)
    before, after = Rendered(values), Rendered(values, chart=next_chart)
    assert immutable(before) == immutable(after)
    assert [template for _, template in before.pods() if template["spec"].get("restartPolicy") != "Never"] == [
        template for _, template in after.pods() if template["spec"].get("restartPolicy") != "Never"
    ]
    assert before.texts != after.texts  # the version is told somewhere


def test_selectors_are_those_of_the_first_version():
    """Written out: a change here is a change that no release can be upgraded over."""
    for component in ("router", "prefill", "decode"):
        selector = Rendered(load_yaml(ci_files()[0])).get("Deployment", f"race-baton-{component}")["spec"]["selector"]
        assert selector == {
            "matchLabels": {
                "app.kubernetes.io/name": "baton",
                "app.kubernetes.io/instance": "race",
                "app.kubernetes.io/component": component,
            }
        }


def test_a_new_tag_changes_no_selector():
    values = load_yaml(ci_files()[0])
    assert immutable(Rendered(values)) == immutable(Rendered({**values, "image": {"tag": "9.9.9"}}))
