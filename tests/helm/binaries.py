"""Baton's programs, asked about their command lines: BATON_BIN or the release build."""

import functools
import os
import pathlib
import re
import subprocess

from chart import ROOT

BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin"))


def run(program, *arguments):
    return subprocess.run([BIN / program, *arguments], capture_output=True, text=True, timeout=60, check=False)


@functools.cache
def flags(program):
    return set(re.findall(r"--[a-z][a-z0-9.-]*", run(program, "--help").stdout))


@functools.cache
def refusal(program, arguments):
    """Why the program does not take these arguments, or None. It ends before it looks at a file or opens a port."""
    # What Kubernetes puts in before a container starts.
    filled = [a.replace("$(POD_IP)", "10.0.0.1").replace("$(CPU_REQUEST)", "2") for a in arguments]
    for one in filled:
        if one.split("=", 1)[0] not in flags(program):
            return f"{program} --help has no {one}"
    ended = run(program, *filled, "--print-config")
    return None if ended.returncode == 0 else ended.stderr.strip()
