"""Values that make no sense are refused before anything is installed, each with one line that says what to do."""

import helm_python
import pytest

from chart import HERE, Rendered, ci_values, load_yaml, merged

BAD = load_yaml(HERE / "bad_values.yaml")


def refusal(values):
    with pytest.raises(helm_python.HelmError) as error:
        Rendered(values)
    return str(error.value)


def problem_lines(text):
    """Of the schema: "- at '/path': ...". Of _validate.tpl: "name: ..." after the template's own position."""
    schema = [line for line in text.splitlines() if line.startswith("- at ")]
    return schema or [line for line in text.splitlines()[1:] if line.strip()]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_refused(case):
    text = refusal(merged(ci_values(case.get("base", "cpu")), case["values"]))
    assert case["message"] in text
    assert len(problem_lines(text)) == 1, text


def test_all_problems_are_told_at_once():
    lines = problem_lines(refusal({}))
    assert [line.split(":")[0] for line in lines] == [
        "model.name",
        "model.source.pvc.existingClaim",
        "link.token.existingSecret",
    ]


def test_there_are_enough():
    assert len(BAD) >= 20
