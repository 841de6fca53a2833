"""What a pod's containers need together: requests, init containers, sidecars, overhead, pod-level resources.

Source: KEP-753 (sidecars), KEP-2837 (pod-level resources), k8s.io/component-helpers/resource PodRequests.
"""

from collections.abc import Mapping

from scheduler.kube.objects import Container, PodSpec, Resources
from scheduler.kube.quantity import MOST, parse_resources

Amounts = Mapping[str, int]
NO_DEFAULTS: Amounts = {}
# A pod that requests more kinds of resource is refused: each takes a bit of 64 where nodes are judged, and no pod has
# as many. A bound pod may: what it uses is counted.
MOST_RESOURCES = 60
# Pod-level resources cover these only; extended resources stay with the containers.
_POD_LEVEL = ("cpu", "memory", "hugepages-")


def requests_of(resources: Resources | None) -> dict[str, int]:
    """Return the requests; a limit without a request counts as one, as by the API server's defaulting."""
    if resources is None:
        return {}
    return parse_resources({**(resources.limits or {}), **(resources.requests or {})})


# What a container without a request counts for when nodes are scored, so that such pods spread too: thousandths of a
# cpu and bytes. Source: kube-scheduler's util.GetNonzeroRequests.
_SCORED_DEFAULTS = {"cpu": 100, "memory": 200 << 20}
# The names under which these amounts are added up, beside the requested ones.
SCORED = {"cpu": "scored cpu", "memory": "scored memory"}


def scored_requests(spec: PodSpec, requests: Amounts) -> dict[str, int]:
    """Return the cpu and memory that a pod with these requests counts for when nodes are scored."""
    every = [one.resources for one in (*(spec.containers or ()), *(spec.init_containers or ()))]
    if every and all(one and _SCORED_DEFAULTS.keys() <= (one.requests or {}).keys() for one in every):
        return {name: requests[name] for name in _SCORED_DEFAULTS}
    scored = pod_requests(spec, _SCORED_DEFAULTS)
    return {name: scored.get(name, 0) for name in _SCORED_DEFAULTS}


def pod_requests(spec: PodSpec, defaults: Amounts = NO_DEFAULTS) -> dict[str, int]:
    """Return what the pod needs at its peak; raise ValueError for an unreadable quantity.

    ``defaults`` stand for what a container does not request.
    """
    running: dict[str, int] = {}
    for container in spec.containers or ():
        running = add(running, {**defaults, **requests_of(container.resources)})
    sidecars, starting = _init_requests(spec.init_containers or (), defaults)
    total = largest(add(running, sidecars), starting)
    pod_level = {name: value for name, value in requests_of(spec.resources).items() if name.startswith(_POD_LEVEL)}
    needed = add(total | pod_level, parse_resources(spec.overhead))
    return {name: min(amount, MOST) for name, amount in needed.items()}


def _init_requests(containers: list[Container] | tuple[()], defaults: Amounts) -> tuple[Amounts, Amounts]:
    """Return what the sidecars need together, and the peak while the pod is starting."""
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in containers:
        requests = {**defaults, **requests_of(container.resources)}
        if container.restart_policy == "Always":
            sidecars = add(sidecars, requests)
            starting = largest(starting, sidecars)
        else:
            starting = largest(starting, add(sidecars, requests))
    return sidecars, starting


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    return {**left, **{name: left.get(name, 0) + amount for name, amount in right.items()}}


def largest(left: Amounts, right: Amounts) -> dict[str, int]:
    return {**left, **{name: max(left.get(name, 0), amount) for name, amount in right.items()}}
