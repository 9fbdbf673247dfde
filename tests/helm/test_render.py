"""Every ci values file and every case: the chart renders, all invariants hold, and what the case expects is there."""

import pytest

import invariants
from chart import HERE, Rendered, at, ci_files, ci_values, load_yaml, merged

CASES = [case for path in sorted((HERE / "cases").glob("*.yaml")) for case in load_yaml(path)]


def broken_invariants(rendered):
    return [f"{check.__name__}: {problem}" for check in invariants.ALL for problem in check(rendered)]


def mismatch(got, want):
    """What is wrong with the value found, or None."""
    if isinstance(want, dict) and "is" in want:
        return None if got == want["is"] else f"got {got!r}, want {want['is']!r}"
    if isinstance(want, dict):
        if "has" in want and (got is None or want["has"] not in got):
            return f"got {got!r}, want {want['has']!r} in it"
        if "lacks" in want and got is not None and want["lacks"] in got:
            return f"got {got!r}, want no {want['lacks']!r} in it"
        return None
    return None if got == want else f"got {got!r}, want {want!r}"


@pytest.mark.parametrize("path", ci_files(), ids=lambda path: path.stem)
def test_ci_values(path):
    assert broken_invariants(Rendered(load_yaml(path))) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    rendered = Rendered(merged(ci_values(case.get("base", "cpu")), case.get("values", {})))
    assert broken_invariants(rendered) == []
    wrong = []
    for name, paths in case.get("expect", {}).items():
        found = rendered.get(*name.split("/"))
        for path, want in paths.items():
            if problem := mismatch(at(found, path), want):
                wrong.append(f"{name} {path}: {problem}")
    for kind in case.get("absent", []):
        wrong += [f"{one} is there" for one in rendered.names() if one == kind or one.split("/")[0] == kind]
    notes = case.get("notes", [])
    for note in [notes] if isinstance(notes, str) else notes:
        if note not in rendered.notes:
            wrong.append(f"the notes have no {note!r}:\n{rendered.notes}")
    assert wrong == []


def test_case_names_are_unique():
    names = [case["name"] for case in CASES]
    assert len(names) == len(set(names)) and len(names) >= 60


def test_rendering_twice_gives_the_same():
    for path in ci_files():
        values = load_yaml(path)
        assert Rendered(values).texts == Rendered(values).texts


def test_two_releases_share_no_names():
    values = ci_values("infiniband")
    one, other = Rendered(values, release="one"), Rendered(values, release="other")
    assert not set(one.names()) & set(other.names())
