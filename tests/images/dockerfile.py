"""Reads the Dockerfiles of images/: stages and their steps, as far as these files use the format. Anything else is an error."""

import dataclasses
import json
import pathlib
import re
import shlex

KNOWN = {"ARG", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "LABEL", "RUN", "USER", "WORKDIR"}
FLAGS = {"COPY": {"from"}, "RUN": {"mount"}}
PLAIN_NAME = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?:[a-z0-9.-]+")  # no registry host, and a tag
USER = re.compile(r"[1-9]\d*:[1-9]\d*")


@dataclasses.dataclass
class Step:
    instruction: str
    value: str
    flags: dict
    line: int

    def words(self):
        return shlex.split(self.value)

    def pairs(self):
        """Of ENV, LABEL and ARG: name -> value; an ARG without a default has none."""
        return dict(word.partition("=")[::2] for word in self.words())

    def exec_form(self):
        return json.loads(self.value)


@dataclasses.dataclass
class Stage:
    base: str
    name: str
    steps: list


class DockerfileError(Exception):
    pass


def logical_lines(text):
    """(number, line), continuations joined, comments and empty lines left out."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not joined and not line.strip()):
            continue
        first = first if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        yield first, joined + line
        joined = ""
    if joined:
        raise DockerfileError(f"line {first}: ends in the middle of an instruction")


def take_flags(rest):
    flags = {}
    while match := re.match(r"--([a-z-]+)=(\S+)\s+", rest):
        flags[match[1]] = match[2]
        rest = rest[match.end():]
    return flags, rest


def parse(path: pathlib.Path):
    stages = []
    for number, line in logical_lines(path.read_text()):
        instruction, _, rest = line.strip().partition(" ")
        where = f"{path.name}:{number}"
        if instruction == "FROM":
            match = re.fullmatch(r"(\S+)(?: AS (\S+))?", rest.strip())
            if match is None:
                raise DockerfileError(f"{where}: got FROM {rest}, want FROM IMAGE [AS NAME]")
            stages.append(Stage(match[1], match[2] or "", []))
            continue
        if instruction not in KNOWN:
            raise DockerfileError(f"{where}: got {instruction}, want FROM or one of {', '.join(sorted(KNOWN))}")
        if not stages:
            raise DockerfileError(f"{where}: {instruction} before the first FROM")
        flags, value = take_flags(rest.strip())
        if unknown := flags.keys() - FLAGS.get(instruction, set()):
            raise DockerfileError(f"{where}: {instruction} --{unknown.pop()} is not known here")
        stages[-1].steps.append(Step(instruction, value, flags, number))
    if not stages:
        raise DockerfileError(f"{path.name}: no FROM")
    return stages


def check(path: pathlib.Path):
    """What a Dockerfile of ours must be, as far as it can be said without building it."""

    def want(held, what):
        if not held:
            raise DockerfileError(f"{path.name}: {what}")

    stages = parse(path)
    for stage in stages:
        want(PLAIN_NAME.fullmatch(stage.base), f"FROM {stage.base}: want a plain name with a tag")
    steps = stages[-1].steps
    users = [step.value for step in steps if step.instruction == "USER"]
    want(len(users) == 1 and USER.fullmatch(users[0]), f"USER: got {users}, want one, by numbers, not root")
    want(steps[-1].instruction == "ENTRYPOINT" and steps[-1].value.startswith("["), "want ENTRYPOINT last, in exec form")
    for step in steps:
        want(step.instruction != "COPY" or step.flags.get("from") == "build", "want the last stage to copy from the build alone")
