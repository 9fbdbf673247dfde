"""What the chart knows of Baton's programs is so. (That they take every command line is an invariant: invariants.flags.)"""

import functools
import re

import binaries
import invariants
from chart import CHART, ROOT, Rendered, at, ci_files, ci_values, load_yaml, own_containers


def test_a_flag_that_does_not_exist_is_seen():
    values = {**ci_values("cpu"), "decode": {"extraArgs": ["--kv.page-tokes=8"]}}
    assert any("--help has no --kv.page-tokes" in problem for problem in invariants.flags(Rendered(values)))


def test_a_value_that_a_setting_does_not_take_is_seen():
    values = {**ci_values("cpu"), "router": {"settings": {"route.candidates": 99}}}
    assert any("route.candidates" in problem for problem in invariants.flags(Rendered(values)))


@functools.cache
def sources(*folders):
    return "".join(path.read_text() for folder in folders for path in sorted((ROOT / folder).glob("*.cc")))


def test_probes_ask_for_what_the_programs_serve():
    for path in ci_files():
        for _, template in Rendered(load_yaml(path)).pods():
            for one in own_containers(template):
                served = sources(one["command"][0].removeprefix("baton-"))
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    assert f'"{at(one, f"{probe}.httpGet.path")}"' in served, (one["name"], probe)


def edges(name):
    body = re.search(name + r" = \{([^}]*)\}", sources("base"))[1]
    return [float(edge) for edge in body.replace("\n", " ").split(",")]


def chart_edges(name):
    text = (CHART / "templates" / "_validate.tpl").read_text()
    return [float(edge) for edge in re.search(rf'define "baton.{name}Edges" -}}}}\n(.*)\n', text)[1].split()]


def test_objectives_are_checked_against_the_edges_of_the_histograms():
    assert chart_edges("ttft") == edges("kTtftSecondsEdges")
    assert chart_edges("tpot") == edges("kInterTokenSecondsEdges")


def test_autoscaling_goes_by_series_that_are_told():
    told = sources("router", "worker")
    series = set(re.findall(r"baton_[a-z_]+", (CHART / "templates" / "_autoscaling.tpl").read_text()))
    assert len(series) == 3
    for name in series:
        assert f'{{"{name}", kGauge' in told or f'{{"{name}",\n       kGauge' in told, name


def test_owned_settings_exist():
    """A name in the lists of _validate.tpl that no program has would guard nothing."""
    text = (CHART / "templates" / "_validate.tpl").read_text()
    for who, program in (("Router", "baton-router"), ("Worker", "baton-worker")):
        block = re.search(rf'define "baton.ownedBy{who}" -}}}}(.*?){{{{- end', text, re.S)[1]
        for name in re.findall(r"[a-z][a-z_.]+", block):
            assert "--" + name.replace("_", "-") in binaries.flags(program), name
