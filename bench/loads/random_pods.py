"""Nodes, claims and pods with rules of every kind, at random, as JSON documents of the API; a seed repeats them.

Rules meet often: there are few labels, zones and taints, and nodes with room for a handful of pods.
"""

from collections.abc import Sequence
from random import Random

from bench.loads.scheduler_load import Json

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
# Every node has a resource of its own by this name: a pod that requests it fits no other node, whatever its rules are.
ONLY = "example.com/only-"
# Priority classes, and whether their pods preempt others.
CLASSES = {"low": (10, True), "middle": (100, True), "high": (1000, True), "polite": (1000, False)}
# The classes of pods that run, and of those that come: these preempt often.
RUNNING, WAITING = ("low", "low", "middle", "high"), ("low", "middle", "high", "high", "polite")
_ZONES, _DISKS, APPS, _FPGA = ("a", "b", "c"), ("ssd", "hdd"), ("x", "y", "z"), "example.com/fpga"
_REQUIRED, _PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
# Claims: bound to a volume of one zone, of one node, or for one pod at a time.
ONE_POD_CLAIM = "once"
CLAIMS = ("in-zone", "on-node", ONE_POD_CLAIM)


def node(random: Random, number: int) -> Json:
    name, cores = f"n{number}", random.choice((2, 4, 8))
    labels = {HOST: name, ZONE: random.choice(_ZONES), "cores": str(cores)}
    if random.random() < 0.7:
        labels["disk"] = random.choice(_DISKS)
    room = {"cpu": str(cores), "memory": f"{random.choice((8, 16))}Gi", "pods": str(random.choice((3, 10, 30)))}
    room |= {_FPGA: str(random.choice((0, 1, 2))), f"{ONLY}{name}": "1000"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": random.random() < 0.08, "taints": [*_taints(random)]},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _taints(random: Random) -> list[Json]:
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    return [
        {"key": key, "value": random.choice(("1", "2")), "effect": random.choice(effects)}
        for key in ("gpu", "team")
        if random.random() < 0.2
    ]


def volume(name: str, namespace: str, claim: str) -> Json:
    """Return the volume of one of the claims."""
    terms = {"in-zone": (ZONE, "a"), "on-node": (HOST, "n0")}
    spec: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": _modes(claim),
        "claimRef": {"namespace": namespace, "name": claim},
        "csi": {"driver": "csi.example", "volumeHandle": name},
    }
    if claim in terms:
        key, value = terms[claim]
        expression = {"key": key, "operator": "In", "values": [value]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {"metadata": {"name": name}, "spec": spec}


def claim(name: str, volume_name: str) -> Json:
    spec = {"storageClassName": "", "accessModes": _modes(name), "volumeName": volume_name}
    metadata = {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    return {"metadata": metadata, "spec": spec | {"resources": {"requests": {"storage": "1Gi"}}}}


def _modes(claim: str) -> list[str]:
    return ["ReadWriteOncePod" if claim == ONE_POD_CLAIM else "ReadWriteMany"]


def budget(random: Random, name: str) -> Json:
    """Return a PodDisruptionBudget of an app; its status says how many may go now."""
    selector = {"matchLabels": {"app": random.choice(APPS)}}
    status = {"disruptionsAllowed": random.randint(0, 1), "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    return {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}, "status": status}


def pod(random: Random, name: str, classes: Sequence[str] = WAITING) -> Json:
    """Return a pod of one of these priority classes, without a node."""
    container = _container(random)
    spec: Json = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "priorityClassName": random.choice(classes),
    }
    if random.random() < 0.15:
        sidecar = {"restartPolicy": "Always"} if random.random() < 0.4 else {}
        requests = {"cpu": random.choice(("1", "6"))}
        spec["initContainers"] = [{"name": "i", "image": "pause", "resources": {"requests": requests}} | sidecar]
    if random.random() < 0.3:
        spec["tolerations"] = [_toleration(random)]
    if random.random() < 0.15:
        spec["nodeSelector"] = {"disk": random.choice(_DISKS)}
    if random.random() < 0.15:
        source = {"claimName": random.choice(CLAIMS)}
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": source}]
    if affinity := _affinity(random):
        spec["affinity"] = affinity
    if random.random() < 0.3:
        spec["topologySpreadConstraints"] = [_spread(random)]
    labels = {"app": random.choice(APPS), "rev": random.choice(("1", "2"))}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _container(random: Random) -> Json:
    cpu, memory = f"{random.choice((100, 500, 1500, 3000))}m", random.choice(("128Mi", "2Gi", "6Gi"))
    resources: Json = {"requests": {"cpu": cpu, "memory": memory}}
    if random.random() < 0.15:
        resources = {"requests": resources["requests"] | {_FPGA: "1"}, "limits": {_FPGA: "1"}}
    container: Json = {"name": "c", "image": "pause", "resources": resources}
    if random.random() < 0.2:
        host_ip = {"hostIP": "127.0.0.1"} if random.random() < 0.3 else {}
        port = {"hostPort": random.choice((8080, 8081)), "protocol": random.choice(("TCP", "UDP"))}
        container["ports"] = [{"containerPort": 80} | port | host_ip]
    return container


def _toleration(random: Random) -> Json:
    if random.random() < 0.5:
        return {"key": random.choice(("gpu", "team")), "operator": "Exists"}
    return {"key": "gpu", "value": "1", "effect": random.choice(("NoSchedule", "NoExecute"))}


def _affinity(random: Random) -> Json:
    affinity: Json = {}
    if random.random() < 0.25:
        terms = [
            {"matchExpressions": [_expression(random) for _ in range(random.randint(1, 2))]}
            for _ in range(random.randint(1, 2))
        ]
        affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
    for kind in ("podAffinity", "podAntiAffinity"):
        if random.random() < 0.15:
            affinity[kind] = {_REQUIRED: [_term(random)]}
        elif random.random() < 0.1:
            affinity[kind] = {_PREFERRED: [{"weight": 10, "podAffinityTerm": _term(random)}]}
    return affinity


def _expression(random: Random) -> Json:
    key, operators, values, most = random.choice(
        (
            ("disk", ("In", "NotIn"), _DISKS, 2),
            ("disk", ("Exists", "DoesNotExist"), _DISKS, 0),
            (ZONE, ("In", "NotIn"), _ZONES, 2),
            ("cores", ("Gt", "Lt"), ("3", "7"), 1),
        )
    )
    chosen = {"values": random.sample(values, random.randint(1, most))} if most else {}
    return {"key": key, "operator": random.choice(operators)} | chosen


def _term(random: Random) -> Json:
    selector = {"matchLabels": {"app": random.choice(APPS)}}
    term = {"topologyKey": random.choice((ZONE, HOST)), "labelSelector": selector}
    return term | ({"namespaceSelector": {}} if random.random() < 0.2 else {})


def _spread(random: Random) -> Json:
    constraint: Json = {
        "maxSkew": random.choice((1, 1, 2)),
        "topologyKey": random.choice((ZONE, HOST, "disk")),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": random.choice(APPS)}},
    }
    options: tuple[tuple[float, Json], ...] = (
        (0.3, {"minDomains": random.choice((2, 4))}),
        (0.3, {"nodeTaintsPolicy": "Honor"}),
        (0.3, {"nodeAffinityPolicy": "Ignore"}),
        (0.2, {"matchLabelKeys": ["rev"]}),
    )
    for chance, option in options:
        constraint |= option if random.random() < chance else {}
    return constraint
