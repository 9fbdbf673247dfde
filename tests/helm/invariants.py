"""What holds for the chart whatever the values are. Each check takes a Rendered and yields what is wrong, as text."""

import re

import binaries
import validation
from chart import POOLS, argument, at, containers, identity, labels_of, own_containers, selected
from references import discovery, ports, references, volumes

SELECTOR = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def schemas(rendered):
    for one in rendered.objects:
        yield from validation.problems(one)


def nulls(value, path):
    if value is None:
        yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from nulls(part, f"{path}.{key}")


def no_null(rendered):
    for one in rendered.objects:
        for path in nulls(one, ""):
            yield f"{identity(one)}{path} is null"


def names(rendered):
    seen = set()
    for one in rendered.objects:
        name = one["metadata"]["name"]
        if identity(one) in seen:
            yield f"{identity(one)} is there twice"
        seen.add(identity(one))
        longest = 52 if one["kind"] in ("Deployment", "LeaderWorkerSet") else 63
        if not NAME.fullmatch(name) or len(name) > longest:
            yield f"{identity(one)}: want a DNS label of at most {longest} characters"
        for key, value in one["metadata"].get("labels", {}).items():
            if not LABEL_VALUE.fullmatch(value) or len(value) > 63:
                yield f"{identity(one)}: label {key}: {value} is no label's value"
        if one["metadata"].get("namespace") != rendered.namespace:
            yield f"{identity(one)}: namespace is not the release's"


def selectors(rendered):
    """Only the three labels that no upgrade changes, and each finds pods."""
    paths = {
        "Deployment": "spec.selector.matchLabels",
        "PodDisruptionBudget": "spec.selector.matchLabels",
        "NetworkPolicy": "spec.podSelector.matchLabels",
        "Service": "spec.selector",
        "PodMonitor": "spec.selector.matchLabels",
        "InferencePool": "spec.selector.matchLabels",
    }
    for one in rendered.objects:
        if one["kind"] in paths:
            selector = at(one, paths[one["kind"]])
            if set(selector) != SELECTOR:
                yield f"{identity(one)}: selects by {sorted(selector)}"
            elif not selected(rendered, selector):
                yield f"{identity(one)}: selects no pod"
        if one["kind"] == "Deployment" and not at(one, paths["Deployment"]).items() <= labels_of(one["spec"]["template"]).items():
            yield f"{identity(one)}: does not select its own pods"
        if one["kind"] == "ServiceMonitor":
            selector = at(one, "spec.selector.matchLabels")
            found = [s for s in rendered.of_kind("Service") if selector.items() <= s["metadata"]["labels"].items()]
            if len(found) != 1:
                yield f"{identity(one)}: selects {len(found)} Services, want 1"


def every_container(rendered):
    for owner, template in rendered.pods():
        for one in containers(template):
            where = f"{identity(owner)} {one['name']}"
            image = one["image"]
            if ("@sha256:" not in image and ":" not in image.rsplit("/", 1)[-1]) or image.endswith(":latest"):
                yield f"{where}: image {image} is not pinned"
            for field in ("resources", "securityContext"):
                if not one.get(field):
                    yield f"{where}: no {field}"
            env = [variable["name"] for variable in one.get("env", [])]
            if len(env) != len(set(env)):
                yield f"{where}: a variable is there twice: {env}"
            if "UCX_TLS" in env:
                yield f"{where}: sets UCX_TLS"
            for given in one.get("args", []):
                for variable in re.findall(r"\$\((\w+)\)", given):
                    if variable not in env:
                        yield f"{where}: {given}: no such variable"
        for one in own_containers(template):
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe not in one:
                    yield f"{identity(owner)} {one['name']}: no {probe}"


def security(rendered):
    for owner, template in rendered.pods():
        spec = template["spec"]
        if spec.get("enableServiceLinks") is not False:
            yield f"{identity(owner)}: Services' names become variables"
        component = labels_of(template)["app.kubernetes.io/component"]
        token = component == "router" and rendered.values["router"]["discovery"] == "kube"
        if spec.get("automountServiceAccountToken") is not token:
            yield f"{identity(owner)}: API token {spec.get('automountServiceAccountToken')}, want {token}"
        if spec.get("hostIPC") or spec.get("hostPID"):
            yield f"{identity(owner)}: shares the host's processes"
    for one in rendered.of_kind("Secret"):
        yield f"{identity(one)}: secrets are the user's to make"


def grace(rendered):
    for owner, template in rendered.pods():
        for one in own_containers(template):
            sleep = at(one, "lifecycle.preStop.sleep.seconds") or 0
            drain = int(argument(one, "--drain-timeout-ms")) / 1000
            if template["spec"]["terminationGracePeriodSeconds"] < sleep + drain:
                yield f"{identity(owner)}: grace period below preStop {sleep} + drain {drain}"


def scaling(rendered):
    scaled = {one["spec"]["scaleTargetRef"]["name"] for one in rendered.of_kind("HorizontalPodAutoscaler", "ScaledObject")}
    for one in rendered.of_kind("Deployment", "LeaderWorkerSet"):
        if ("replicas" in one["spec"]) == (one["metadata"]["name"] in scaled):
            yield f"{identity(one)}: replicas {one['spec'].get('replicas')}, scaled: {one['metadata']['name'] in scaled}"


def fabric(rendered):
    """One domain for all pools, the same label and clique rule in each, and no UCX over TCP."""
    nvlink = rendered.values["fabric"]["profile"] == "nvl72"
    domain = rendered.values["fabric"]["nvlinkDomain"]
    made = [one["spec"]["channel"]["resourceClaimTemplate"]["name"] for one in rendered.of_kind("ComputeDomain")]
    if len(made) != (nvlink and domain["mode"] == "create"):
        yield f"{len(made)} ComputeDomains"
    workers = [(owner, t) for owner, t in rendered.pods() if any(c["name"] == "worker-0" for c in t["spec"]["containers"])]
    for owner, template in workers:
        if (labels_of(template).get("baton/fabric") == "nvlink") != nvlink:
            yield f"{identity(owner)}: label baton/fabric"
        claims = {c["name"]: c["resourceClaimTemplateName"] for c in template["spec"].get("resourceClaims", [])}
        if not set(claims.values()) <= {*made, domain["existingResourceClaimTemplate"]}:
            yield f"{identity(owner)}: nobody makes {claims}"
        for one in own_containers(template):
            if {c["name"] for c in one["resources"].get("claims", [])} != set(claims):
                yield f"{identity(owner)} {one['name']}: claims of the pod and its container differ"
        pool = rendered.values[labels_of(template)["app.kubernetes.io/component"]]
        if nvlink and domain["requireSameClique"] and not pool["affinity"]:
            term = at(template, "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]")
            want = {"app.kubernetes.io/instance": rendered.release, "baton/fabric": "nvlink"}
            if term != {"topologyKey": domain["topologyKey"], "labelSelector": {"matchLabels": want}}:
                yield f"{identity(owner)}: clique affinity {term}"


def only_what_is_on(rendered):
    values = rendered.values
    on = {
        "Ingress": values["ingress"]["enabled"],
        "HTTPRoute": values["httpRoute"]["enabled"],
        "InferencePool": values["inferencePool"]["enabled"],
        "NetworkPolicy": values["networkPolicy"]["enabled"],
        "PodMonitor": values["metrics"]["podMonitor"]["enabled"],
        "ServiceMonitor": values["metrics"]["serviceMonitor"]["enabled"],
        "PrometheusRule": values["metrics"]["prometheusRule"]["enabled"],
        "Certificate": values["link"]["tls"]["certManager"]["enabled"],
        "Role": values["rbac"]["create"] and values["router"]["discovery"] == "kube",
        "RoleBinding": values["rbac"]["create"] and values["router"]["discovery"] == "kube",
        "ServiceAccount": values["serviceAccount"]["create"],
    }
    scaled = {pool: values[pool]["autoscaling"] for pool in ("router", *POOLS) if values[pool].get("enabled", True)}
    for kind, name in (("HorizontalPodAutoscaler", "hpa"), ("ScaledObject", "keda")):
        on[kind] = any(one["enabled"] and one["type"] == name for one in scaled.values())
    on["PodDisruptionBudget"] = any(values[pool]["pdb"]["enabled"] for pool in scaled)
    extra = sum(isinstance(one, dict) for one in values["extraObjects"])
    for kind, wanted in on.items():
        if bool(rendered.of_kind(kind)) != bool(wanted) and not extra:
            yield f"{kind}: {len(rendered.of_kind(kind))} objects, want {'some' if wanted else 'none'}"
    components = {one["metadata"].get("labels", {}).get("app.kubernetes.io/component") for one in rendered.objects}
    for pool in POOLS:
        if (pool in components) != values[pool]["enabled"]:
            yield f"{pool}: objects although enabled is {values[pool]['enabled']}, or none"


def flags(rendered):
    """The program itself takes the command line, names and values."""
    for owner, template in rendered.pods():
        for one in own_containers(template):
            if error := binaries.refusal(one["command"][0], tuple(one["args"])):
                yield f"{identity(owner)} {one['name']}: {error}"


ALL = (
    schemas,
    no_null,
    names,
    selectors,
    every_container,
    security,
    volumes,
    references,
    ports,
    discovery,
    grace,
    scaling,
    fabric,
    only_what_is_on,
    flags,
)
