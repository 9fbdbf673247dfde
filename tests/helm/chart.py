"""The chart rendered by Helm's own engine (helm-python-sdk binds it), as objects. Rendering takes some 40 ms and no cluster."""

import copy
import functools
import pathlib
import re

import helm_python
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "baton"
HERE = pathlib.Path(__file__).resolve().parent
RELEASE, NAMESPACE = "race", "prod"
POOLS = ("prefill", "decode", "both")


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """libyaml's where PyYAML has it. A key that is there twice is an error: Kubernetes would take one of the two."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if len(keys) != len(set(keys)):
            raise ValueError(f"{node.start_mark}: a key is there twice: {keys}")
        return super().construct_mapping(node, deep)


def load_yaml(path):
    return yaml.load(path.read_text(), Loader)


def ci_files():
    return sorted((CHART / "ci").glob("*-values.yaml"))


def ci_values(name):
    return load_yaml(CHART / "ci" / f"{name}-values.yaml")


def merged(base, over):
    """Helm's rule: maps are merged, everything else is replaced, null removes."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


@functools.cache
def loaded(folder=CHART):
    return helm_python.Chart.load(folder)


class Rendered:
    """What one set of values gives: `objects` (hooks too, as maps), `notes`, and `texts` by template."""

    def __init__(self, values, chart=None, release=RELEASE, namespace=NAMESPACE):
        self.release, self.namespace = release, namespace
        self.values = (chart or loaded()).merge_values(values)
        self.texts = (chart or loaded()).render(values, name=release, namespace=namespace, is_install=True)
        self.notes = self.texts.pop("baton/templates/NOTES.txt")
        self.objects = [
            document
            for name in sorted(self.texts)
            for document in yaml.load_all(self.texts[name], Loader)
            if document is not None
        ]

    def of_kind(self, *kinds):
        return [found for found in self.objects if found["kind"] in kinds]

    def get(self, kind, name=None):
        found = [one for one in self.of_kind(kind) if name in (None, one["metadata"]["name"])]
        assert len(found) == 1, f"{kind} {name}: got {len(found)}, want 1 of {self.names()}"
        return found[0]

    @property
    def fullname(self):
        return next(one["metadata"]["name"] for one in self.of_kind("Service") if one["spec"].get("clusterIP") != "None")

    def names(self):
        return [identity(one) for one in self.objects]

    def pods(self):
        """(object, its pod template) of whatever makes pods."""
        for one in self.objects:
            if one["kind"] == "Deployment":
                yield one, one["spec"]["template"]
            elif one["kind"] == "LeaderWorkerSet":
                yield one, one["spec"]["leaderWorkerTemplate"]["workerTemplate"]
            elif one["kind"] == "Pod":
                yield one, one


def identity(one):
    return f"{one['kind']}/{one['metadata']['name']}"


def containers(template):
    return template["spec"].get("initContainers", []) + template["spec"]["containers"]


def at(value, path):
    """The value at "spec.containers[0].args"; what is in brackets is an index, an entry's name, or a key with dots; else None."""
    for name, bracketed in re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", path):
        if name or isinstance(value, dict):
            value = value.get(name or bracketed) if isinstance(value, dict) else None
        elif isinstance(value, list) and re.fullmatch(r"-?\d+", bracketed):
            value = value[int(bracketed)] if -len(value) <= int(bracketed) < len(value) else None
        else:
            value = next((entry for entry in value or [] if entry.get("name") == bracketed), None)
    return value


def own_containers(template):
    """The router or the workers; sidecars are the user's."""
    return [one for one in template["spec"]["containers"] if one["name"] == "router" or one["name"].startswith("worker-")]


def labels_of(template):
    return template["metadata"]["labels"]


def selected(rendered, selector):
    return [t for _, t in rendered.pods() if selector.items() <= labels_of(t).items()]


def argument(container, flag):
    found = [a.split("=", 1)[1] for a in container["args"] if a.startswith(flag + "=")]
    return found[0] if found else None
