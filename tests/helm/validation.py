"""Objects against schemas: Kubernetes' own, for the oldest version that the chart takes and the newest known one, and hand-kept
ones in schemas/ for what others define. All are strict: an unknown field is an error."""

import functools
import importlib.util
import json
import pathlib

import jsonschema_rs

from chart import HERE

KUBERNETES = ("1.34", "1.37")


@functools.cache
def definitions(version):
    package = pathlib.Path(importlib.util.find_spec("kubernetes_validate").origin).parent
    folder = package / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    return json.loads((folder / "_definitions.json").read_text())["$defs"]


@functools.cache
def kubernetes_kinds(version):
    """(apiVersion, kind) to the definition's name."""
    kinds = {}
    for name, definition in definitions(version).items():
        for known in definition.get("x-kubernetes-group-version-kind", []):
            group = known["group"] + "/" if known["group"] else ""
            kinds[group + known["version"], known["kind"]] = name
    return kinds


@functools.cache
def custom_schemas():
    schemas = [json.loads(path.read_text()) for path in sorted((HERE / "schemas").glob("*.json"))]
    return {(s["properties"]["apiVersion"]["const"], s["properties"]["kind"]["const"]): s for s in schemas}


@functools.cache
def validator(version, api_version, kind):
    name = kubernetes_kinds(version).get((api_version, kind))
    if name:
        return jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": definitions(version)})
    schema = custom_schemas()[api_version, kind]
    # Parts of them are Kubernetes' own, e.g. the pod template of a LeaderWorkerSet.
    return jsonschema_rs.validator_for({**schema, "$defs": definitions(version)})


def problems(one):
    """What is wrong with an object, as text."""
    key = one["apiVersion"], one["kind"]
    found = []
    for version in KUBERNETES:
        if key not in kubernetes_kinds(version) and key not in custom_schemas():
            return [f"{key[0]} {key[1]}: no schema"]
        for error in validator(version, *key).iter_errors(one):
            path = ".".join(str(step) for step in error.instance_path)
            found.append(f"Kubernetes {version}: {key[1]}/{one['metadata']['name']} {path}: {error.message[:300]}")
    return found
