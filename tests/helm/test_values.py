"""values.yaml, its schema, its comments and the chart's README say the same."""

import json
import re

import helm_python
import jsonschema_rs

from chart import CHART, ci_files, load_yaml, loaded

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def resolved(schema):
    return SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def schema_leaves(schema, prefix=""):
    """Paths of all values that the schema names; a map without named values is one value."""
    schema = resolved(schema)
    if "properties" not in schema:
        return {prefix[:-1]}
    return set().union(*(schema_leaves(part, f"{prefix}{name}.") for name, part in schema["properties"].items()))


def value_leaves(values, known, prefix=""):
    leaves = set()
    for name, value in values.items():
        path = prefix + name
        leaves |= {path} if path in known or not isinstance(value, dict) else value_leaves(value, known, path + ".")
    return leaves


def commented_paths():
    """Paths of the keys in values.yaml that a "# --" line stands right above."""
    commented, stack, previous = set(), [], ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if match := re.match(r"( *)([A-Za-z_]\w*):", line):
            depth = len(match[1]) // 2
            stack = [*stack[:depth], match[2]]
            if previous.strip().startswith("# -- "):
                commented.add(".".join(stack))
        previous = line
    return commented


def test_values_and_schema_name_the_same():
    known = schema_leaves(SCHEMA)
    assert value_leaves(loaded().values, known) == known


def test_every_value_has_a_comment():
    # decode and both take what stands under prefill.
    wanted = {re.sub(r"^(decode|both)\.", "prefill.", path) for path in schema_leaves(SCHEMA)}
    assert wanted - commented_paths() == set()


def test_every_comment_is_a_sentence():
    lines = [line.strip() for line in (CHART / "values.yaml").read_text().splitlines() if line.strip().startswith("# --")]
    assert [line for line in lines if not line.endswith(".")] == []


def test_schema_is_closed_and_refers_to_nothing_remote():
    jsonschema_rs.meta.validate(SCHEMA)

    def walk(schema, path):
        if isinstance(schema, list):
            for part in schema:
                walk(part, path)
        if not isinstance(schema, dict):
            return
        assert str(schema.get("$ref", "#")).startswith("#"), path
        # A parent chart's globals come in under `global`.
        if "properties" in schema and path != "/properties/global":
            assert schema.get("additionalProperties") is False, path
        for name, part in schema.items():
            walk(part, f"{path}/{name}")

    walk(SCHEMA, "")


def test_ci_values_fit_the_schema():
    for path in ci_files():
        loaded().validate_schema(load_yaml(path))


def test_lint_finds_nothing():
    for path in ci_files():
        report = helm_python.lint(CHART, load_yaml(path), strict=True)
        assert [m for m in report["messages"] if m["severity"] > 1] == [], path.name
        assert report["errors"] == []


def test_package_has_what_templates_read(tmp_path):
    archive = helm_python.package(CHART, destination=tmp_path)
    with helm_python.Chart.load(archive) as chart:
        assert {"scripts/fetch-model.sh", "scripts/stream-completion.sh"} <= {file["name"] for file in chart.files}
        values = load_yaml(ci_files()[0])
        assert chart.render(values, name="a") == loaded().render(values, name="a")


def test_readme_names_values_that_exist():
    known = schema_leaves(SCHEMA)
    groups = {path.rsplit(".", depth)[0] for path in known for depth in range(1, path.count(".") + 1)}
    named = set(re.findall(r"`([a-z][A-Za-z]+(?:\.[A-Za-z_]+)+)`", (CHART / "README.md").read_text()))
    named = {name for name in named if not name.startswith("values.")}  # files
    assert named and named - known - groups == set()
