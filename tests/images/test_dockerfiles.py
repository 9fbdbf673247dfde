"""The Dockerfiles as texts: cheap, so that each change is checked. tests/images/run builds them."""

import pathlib
import re

import pytest

from dockerfile import DockerfileError, check, parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ["router", "worker-cpu", "worker-cuda"]
GOOD = """\
FROM debian:12-slim AS build
RUN true \\
    && true

FROM debian:12-slim
COPY --from=build /a /b
USER 7:7
ENTRYPOINT ["x"]
"""


def test_there_are_no_others():
    assert sorted(path.name for path in (ROOT / "images").glob("*Dockerfile*")) == [f"{name}.Dockerfile" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_is_as_it_should_be_and_fits_the_chart(name):
    path = ROOT / "images" / f"{name}.Dockerfile"
    check(path)
    (user,) = [step.value.split(":")[0] for step in parse(path)[-1].steps if step.instruction == "USER"]
    chart = (ROOT / "helm/baton/values.yaml").read_text()
    assert set(re.findall(r"runAsUser: (\d+)", chart)) == {user}


def test_what_is_good(tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text(GOOD)
    check(path)
    build, last = parse(path)
    assert [step.value.split() for step in build.steps] == [["true", "&&", "true"]]
    assert last.steps[0].flags == {"from": "build"}


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("FROM debian:12-slim\n", "FROM registry.example/debian:12\n", "want a plain name"),
        ("FROM debian:12-slim\n", "FROM debian\n", "want a plain name"),
        ("USER 7:7\n", "", "want one, by numbers"),
        ("USER 7:7\n", "USER 0:0\n", "want one, by numbers"),
        ("USER 7:7\n", "USER nobody\n", "want one, by numbers"),
        ('["x"]', "x", "exec form"),
        ("--from=build ", "", "copy from the build alone"),
        ("--from=build", "--chown=7", "--chown is not known"),
        ("RUN true", "ADD x", "got ADD"),
        ("FROM debian:12-slim AS build\n", "", "before the first FROM"),
        ('["x"]\n', '["x"] \\', "in the middle"),
    ],
)
def test_what_is_bad(tmp_path, old, new, message):
    path = tmp_path / "Dockerfile"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(DockerfileError, match=message):
        check(path)
