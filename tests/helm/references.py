"""Every name in the chart's objects leads to something: volumes, Secrets, accounts, ports, Services, workers. Checks as in
invariants.py."""

import re

from chart import POOLS, argument, at, containers, identity, labels_of, own_containers, selected


def wanted_names(rendered, kind):
    """Names of objects that the values speak of: they exist outside the chart."""
    values = rendered.values
    if kind == "Secret":
        tls = values["link"]["tls"]
        given = [
            values["link"]["token"]["existingSecret"],
            values["auth"]["apiKeys"]["existingSecret"],
            values["service"]["tls"]["existingSecret"],
            values["model"]["source"]["hf"]["existingSecret"],
            tls["existingSecret"],
        ]
        return {name for name in given if name} | {c["spec"]["secretName"] for c in rendered.of_kind("Certificate")}
    if kind == "PersistentVolumeClaim":
        source = values["model"]["source"]
        return {source["pvc"]["existingClaim"], source["hf"]["existingClaim"]} - {""}
    if kind == "ServiceAccount":
        return {values["serviceAccount"]["routerName"], values["serviceAccount"]["workerName"], "default"} - {""}
    return set()


def exists(rendered, kind, name):
    return name in wanted_names(rendered, kind) or f"{kind}/{name}" in rendered.names()


def volumes(rendered):
    """Every mount has its volume, every volume its source and its mount."""
    for owner, template in rendered.pods():
        spec = template["spec"]
        there = [volume["name"] for volume in spec.get("volumes", [])]
        if len(there) != len(set(there)):
            yield f"{identity(owner)}: a volume is there twice: {there}"
        mounted = set()
        for one in containers(template):
            for mount in one.get("volumeMounts", []):
                mounted.add(mount["name"])
                if mount["name"] not in there:
                    yield f"{identity(owner)} {one['name']}: no volume {mount['name']}"
            for variable in one.get("env", []):
                secret = at(variable, "valueFrom.secretKeyRef.name")
                if secret and not exists(rendered, "Secret", secret) and variable["name"] == "HF_TOKEN":
                    yield f"{identity(owner)} {one['name']}: no Secret {secret}"
        for volume in spec.get("volumes", []):
            if volume["name"] in {extra["name"] for pod in ("router", *POOLS) for extra in rendered.values[pod]["extraVolumes"]}:
                continue
            if volume["name"] not in mounted:
                yield f"{identity(owner)}: nobody mounts {volume['name']}"
            for path, kind in (
                ("secret.secretName", "Secret"),
                ("configMap.name", "ConfigMap"),
                ("persistentVolumeClaim.claimName", "PersistentVolumeClaim"),
            ):
                name = at(volume, path)
                if name and not exists(rendered, kind, name):
                    yield f"{identity(owner)}: no {kind} {name}"


def references(rendered):
    for owner, template in rendered.pods():
        account = template["spec"].get("serviceAccountName")
        if account and not exists(rendered, "ServiceAccount", account):
            yield f"{identity(owner)}: no ServiceAccount {account}"
    for one in rendered.of_kind("RoleBinding"):
        if f"Role/{one['roleRef']['name']}" not in rendered.names():
            yield f"{identity(one)}: no Role"
        users = {t["spec"]["serviceAccountName"] for _, t in rendered.pods() if t["spec"].get("automountServiceAccountToken")}
        if {subject["name"] for subject in one["subjects"]} != users:
            yield f"{identity(one)}: binds {one['subjects']}, want {users}"
    for one in rendered.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        target = one["spec"]["scaleTargetRef"]
        if f"{target['kind']}/{target['name']}" not in rendered.names():
            yield f"{identity(one)}: no {target}"
    for one in rendered.of_kind("Ingress"):
        for rule in one["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                if f"Service/{path['backend']['service']['name']}" not in rendered.names():
                    yield f"{identity(one)}: no backend"
    for one in rendered.of_kind("HTTPRoute"):
        for backend in (b for rule in one["spec"]["rules"] for b in rule["backendRefs"]):
            if backend["port"] not in [port["port"] for port in rendered.get("Service", backend["name"])["spec"]["ports"]]:
                yield f"{identity(one)}: no port {backend['port']}"


def ports(rendered):
    """Probes, Services, monitors and policies name ports that pods have."""
    for owner, template in rendered.pods():
        taken = []
        for one in containers(template):
            mine = {port["name"]: port["containerPort"] for port in one.get("ports", [])}
            taken += mine.values()
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                port = at(one, f"{probe}.httpGet.port")
                if port and port not in mine and port not in mine.values():
                    yield f"{identity(owner)} {one['name']}: {probe}: no port {port}"
        if len(taken) != len(set(taken)):
            yield f"{identity(owner)}: a port is there twice: {taken}"

    def of_pods(selector):
        found = [p for t in selected(rendered, selector) for c in containers(t) for p in c.get("ports", [])]
        return {p["name"] for p in found} | {p["containerPort"] for p in found}

    for one in rendered.of_kind("Service"):
        for port in one["spec"]["ports"]:
            if port["targetPort"] not in of_pods(one["spec"]["selector"]):
                yield f"{identity(one)}: no port {port['targetPort']}"
    for one in rendered.of_kind("PodMonitor"):
        for endpoint in one["spec"]["podMetricsEndpoints"]:
            if endpoint["port"] not in of_pods(at(one, "spec.selector.matchLabels")):
                yield f"{identity(one)}: no port {endpoint['port']}"
    for one in rendered.of_kind("ServiceMonitor"):
        selector = at(one, "spec.selector.matchLabels")
        services = [s for s in rendered.of_kind("Service") if selector.items() <= s["metadata"]["labels"].items()]
        there = {port["name"] for service in services for port in service["spec"]["ports"]}
        if missing := {e["port"] for e in one["spec"]["endpoints"]} - there:
            yield f"{identity(one)}: no ports {missing}"
    for one in rendered.of_kind("NetworkPolicy"):
        open_ports = {p["port"] for rule in one["spec"]["ingress"] for p in rule["ports"]}
        of_its_pods = of_pods(at(one, "spec.podSelector.matchLabels"))
        if open_ports - of_its_pods:
            yield f"{identity(one)}: opens {open_ports - of_its_pods}, which nobody listens on"


def discovery(rendered):
    """The router's list names every worker of every pool, by Services and ports that exist, and workers listen there."""
    router = rendered.get("Deployment", rendered.fullname + "-router")["spec"]["template"]["spec"]["containers"][0]
    named = set()
    for entry in argument(router, "--workers").split(","):
        match = re.fullmatch(r"kube:([^/]+)/([^:]+):(\d+)|dns:([^.]+)\.([^.]+)\.svc:(\d+)", entry)
        if not match:
            yield f"--workers: got {entry}"
            continue
        namespace, service, port = match.group(1, 2, 3) if match[1] else match.group(5, 4, 6)
        headless = rendered.get("Service", service)["spec"]
        if namespace != rendered.namespace or headless["clusterIP"] != "None" or headless.get("publishNotReadyAddresses"):
            yield f"--workers: {entry}: not the release's headless Service of ready pods"
        if int(port) not in [p["port"] for p in headless["ports"]]:
            yield f"--workers: {entry}: the Service has no such port"
        named.add((headless["selector"]["app.kubernetes.io/component"], port))
    listening = {
        (labels_of(t)["app.kubernetes.io/component"], argument(c, "--listen").rsplit(":", 1)[1])
        for _, t in rendered.pods()
        for c in own_containers(t)
        if c["name"] != "router"
    }
    if named != listening:
        yield f"--workers names {sorted(named)}, workers listen at {sorted(listening)}"
