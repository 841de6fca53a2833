"""A small cluster as the API's documents, and a generator of such."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

Json = dict[str, Any]
OWNERS = (
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("v1", "ReplicationController"),
    ("x/v1", "ReplicaSet"),
)

IMAGES = ("small", "reg:5000/large", "huge:latest", "huge@sha256:1", "absent")
ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(slots=True)
class World:
    """Nodes, the pods on them (each with spec.nodeName), namespaces' labels, and what selects pods."""

    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    services: list[Json] = field(default_factory=list)
    controllers: list[Json] = field(default_factory=list)


def random_world(random: Random) -> World:
    """Draw up to 8 nodes and 14 pods, from so few labels that they meet."""
    namespaces = {name: random_labels(random, ("team",)) for name in ("a", "b", "c")}
    nodes = [random_node(random, number) for number in range(random.randint(1, 8))]
    world = World(nodes, [], namespaces)
    for _ in range(random.randint(0, 14)):
        pod = random_pod(random)
        pod["spec"]["nodeName"] = random.choice(nodes)["metadata"]["name"]
        if random.random() < 0.15:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.pods.append(pod)
    world.services = [_service(random, number) for number in range(random.randint(0, 3))]
    world.controllers = [
        _controller(random, kind) for kind in ("ReplicaSet", "StatefulSet", "ReplicationController") if _rarely(random)
    ]
    return world


def random_labels(random: Random, keys: tuple[str, ...]) -> dict[str, str]:
    return {key: random.choice("xy") for key in keys if random.random() < 0.7}


def random_node(random: Random, number: int) -> Json:
    """Draw a node; any label may be missing, and two may share a host name."""
    labels = {}
    if random.random() < 0.9:
        labels["kubernetes.io/hostname"] = f"n{number if random.random() < 0.9 else 0}"
    if random.random() < 0.8:
        labels[ZONE] = random.choice(["z1", "z2", "z3"])
    labels |= random_labels(random, ("rack", "disk"))
    taints = [{"key": "k", "value": random.choice("xy"), "effect": random.choice(["NoSchedule", "PreferNoSchedule"])}]
    images = [
        {"names": [f"{name}:latest", f"{name}@sha256:1"], "sizeBytes": size}
        for name, size in (("small", 5_000_000), ("reg:5000/large", 900_000_000), ("huge", 3_000_000_000))
        if random.random() < 0.5
    ]
    return {
        "metadata": {"name": f"n{number}", "labels": labels},
        "spec": {"taints": taints if _rarely(random) else []},
        "status": {"images": images},
    }


def random_pod(random: Random) -> Json:
    """Draw a pod with labels, perhaps affinity, anti-affinity, constraints, a node selector and tolerations."""
    labels = random_labels(random, ("app", "tier", "rev"))
    affinity: Json = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if random.random() < 0.4:
            affinity[kind] = {
                REQUIRED: [_term(random) for _ in range(random.choice([0, 1, 1, 2]))],
                PREFERRED: [
                    {"weight": random.randint(1, 100), "podAffinityTerm": _term(random)}
                    for _ in range(random.choice([0, 1, 2]))
                ],
            }
    spec: Json = {"affinity": affinity} if affinity else {}
    if random.random() < 0.5:
        spec["topologySpreadConstraints"] = [_constraint(random) for _ in range(random.randint(1, 3))]
    if _rarely(random):
        spec["nodeSelector"] = {"disk": "x"}
    if _rarely(random):
        spec["tolerations"] = [{"key": "k", "operator": "Equal", "value": "x"}]
    images = random.choices(IMAGES, k=random.randint(1, 3))
    spec["containers"] = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    if _rarely(random):
        spec["volumes"] = [{"name": "v", "image": {"reference": random.choice(IMAGES)}}]
    metadata: Json = {"name": "p", "namespace": random.choice("abc"), "uid": "u", "labels": labels}
    if _rarely(random):
        version, kind = random.choice(OWNERS)
        metadata["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": "owner", "controller": True}]
    return {"metadata": metadata, "spec": spec}


def _rarely(random: Random) -> bool:
    return random.random() < 0.3


def _key(random: Random) -> str:
    return random.choice(["kubernetes.io/hostname", ZONE, ZONE, "rack"])


def _selector(random: Random, keys: tuple[str, ...]) -> Json | None:
    if random.random() < 0.1:
        return None
    selector: Json = {}
    if random.random() < 0.6:
        selector["matchLabels"] = {random.choice(keys): random.choice("xy")}
    if random.random() < 0.4:
        operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = random.sample(["x", "y"], random.randint(1, 2)) if operator in ("In", "NotIn") else []
        selector["matchExpressions"] = [{"key": random.choice(keys), "operator": operator, "values": values}]
    return selector


def _term(random: Random) -> Json:
    term: Json = {"topologyKey": _key(random), "labelSelector": _selector(random, ("app", "tier"))}
    if random.random() < 0.25:
        term["namespaces"] = random.sample(["a", "b", "c"], random.randint(1, 2))
    if random.random() < 0.25:
        term["namespaceSelector"] = _selector(random, ("team",))
    if random.random() < 0.2:
        term[random.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["rev"]
    return term


def _constraint(random: Random) -> Json:
    constraint: Json = {
        "topologyKey": _key(random),
        "maxSkew": random.randint(1, 3),
        "whenUnsatisfiable": random.choice(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": _selector(random, ("app", "tier")),
    }
    if random.random() < 0.3 and constraint["whenUnsatisfiable"] == "DoNotSchedule":
        constraint["minDomains"] = random.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if _rarely(random):
            constraint[policy] = random.choice(["Honor", "Ignore"])
    if constraint["labelSelector"] is not None and _rarely(random):
        constraint["matchLabelKeys"] = ["rev"]
    return constraint


def _service(random: Random, number: int) -> Json:
    selector = random.choice([None, {}, random_labels(random, ("app",)), random_labels(random, ("app", "tier"))])
    return {"metadata": {"name": f"s{number}", "namespace": random.choice("abc")}, "spec": {"selector": selector}}


def _controller(random: Random, kind: str) -> Json:
    selector: Json | None = _selector(random, ("app", "tier"))
    if kind == "ReplicationController":
        selector = (selector or {}).get("matchLabels", {})
    metadata = {"name": "owner", "namespace": random.choice("abc")}
    return {"kind": kind, "metadata": metadata, "spec": {"selector": selector}}
