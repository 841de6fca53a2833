"""What a pod's containers need together: requests, init containers, sidecars, overhead, pod-level resources.

Source: KEP-753 (sidecars), KEP-2837 (pod-level resources), k8s.io/component-helpers/resource PodRequests.
"""

from collections.abc import Mapping, Set
from typing import Literal

from scheduler.constraints.protocol import ContainerSide
from scheduler.kube.objects import Container, PodSpec, Quantities, Resources
from scheduler.kube.quantity import MOST, parse_resources

Amounts = Mapping[str, int]
NO_DEFAULTS: Mapping[str, int] = {}
# A pod that requests more kinds of resource is rejected: each needs one of 64 bits when nodes are evaluated, and no
# real pod has as many. A bound pod may have more, and its use is counted.
MOST_RESOURCES = 60
# Pod-level resources cover these only; extended resources stay with the containers.
_POD_LEVEL = ("cpu", "memory", "hugepages-")


_Role = Literal["init", "sidecar", "main"]
_INIT: _Role = "init"
_SIDECAR: _Role = "sidecar"
_MAIN: _Role = "main"
# A pod that names more amounts, of any kinds, is rejected without reading them: reading one takes a few microseconds.
MOST_AMOUNTS = 4096


def amounts_named(spec: PodSpec) -> int:
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    every = (
        *(container.resources for container in containers if container.resources is not None),
        *filter(None, (spec.resources,)),
    )
    return sum(len(container.requests or ()) + len(container.limits or ()) for container in every) + len(
        spec.overhead or ()
    )


def container_sides(spec: PodSpec) -> tuple[ContainerSide, ...]:
    """Return the containers' limits in the form for constraints; raise ValueError for an unreadable quantity."""
    early = [
        (container, _SIDECAR if container.restart_policy == "Always" else _INIT)
        for container in spec.init_containers or ()
    ]
    every = [*early, *((container, _MAIN) for container in spec.containers or ())]
    return tuple(
        ContainerSide(
            container.name, parse_resources(container.resources.limits if container.resources else None), role
        )
        for container, role in every
    )


def requests_of(resources: Resources | None, only: Set[str] | None = None) -> dict[str, int]:
    """Return the requests; a limit without a request counts as one, as in the API server's defaulting.

    Resources that are not in ``only`` are not read.
    """
    return (
        {}
        if resources is None
        else parse_resources({**_some(resources.limits, only), **_some(resources.requests, only)})
    )


def _some(quantities: Quantities | None, only: Set[str] | None) -> Quantities:
    if quantities is None or only is None:
        return quantities or {}
    return {name: quantities[name] for name in quantities.keys() & only}


# The amounts for scoring that a container without a request has, so that such pods spread too: thousandths of a cpu,
# and bytes. Source: kube-scheduler's util.GetNonzeroRequests.
_SCORED_DEFAULTS: Mapping[str, int] = {"cpu": 100, "memory": 200 << 20}
# The names under which these amounts are added up, in addition to the requested ones.
SCORED: Mapping[str, str] = {"cpu": "scored cpu", "memory": "scored memory"}


def scored_requests(spec: PodSpec, requests: Amounts) -> dict[str, int]:
    """Return the cpu and memory of a pod with these requests for scoring."""
    every = [container.resources for container in (*(spec.containers or ()), *(spec.init_containers or ()))]
    if every and all(container and _SCORED_DEFAULTS.keys() <= (container.requests or {}).keys() for container in every):
        return {name: requests[name] for name in _SCORED_DEFAULTS}
    total = pod_requests(spec, _SCORED_DEFAULTS, _SCORED_DEFAULTS.keys())
    return {name: total.get(name, 0) for name in _SCORED_DEFAULTS}


def pod_requests(spec: PodSpec, defaults: Amounts = NO_DEFAULTS, only: Set[str] | None = None) -> dict[str, int]:
    """Return what the pod needs at its peak; raise ValueError for an unreadable quantity.

    ``defaults`` are used for what a container does not request. Resources that are not in ``only`` are not read.
    """
    running_sum: dict[str, int] = {}
    for container in spec.containers or ():
        if requests := _requests(container, defaults, only):
            _add_to(running_sum, requests)
    sidecars, starting_peak = _init_requests(spec.init_containers or (), defaults, only)
    _add_to(running_sum, sidecars)
    total = largest(running_sum, starting_peak)
    pod_level = {
        name: value for name, value in requests_of(spec.resources, only).items() if name.startswith(_POD_LEVEL)
    }
    total_requests = add(total | pod_level, parse_resources(_some(spec.overhead, only)))
    return {name: min(amount, MOST) for name, amount in total_requests.items()}


def _init_requests(
    containers: list[Container] | tuple[()], defaults: Amounts, only: Set[str] | None
) -> tuple[Amounts, Amounts]:
    """Return what the sidecars need together, and the peak while the pod is starting.

    The peak has only resources that an init container requests: for all others the sidecars need most once all of them
    run.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:
        requests = _requests(container, defaults, only)
        if not requests:
            continue
        if container.restart_policy == "Always":
            _add_to(sidecars, requests)
        else:
            for name, amount in requests.items():
                peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + amount)
    return sidecars, peak


def _requests(container: Container, defaults: Amounts, only: Set[str] | None) -> Amounts:
    resources = container.resources
    # The API server sends ``resources: {}`` if a container names none, and a pod may have ten thousand of them.
    if resources is None or not (resources.requests or resources.limits):
        return defaults
    return {**defaults, **requests_of(resources, only)}


def _add_to(total: dict[str, int], amounts: Amounts) -> None:
    """Add amounts to a total in place: building a new sum for each of many containers takes quadratic time."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    return {**left, **{name: left.get(name, 0) + amount for name, amount in right.items()}}


def largest(left: Amounts, right: Amounts) -> dict[str, int]:
    return {**left, **{name: max(left.get(name, 0), amount) for name, amount in right.items()}}
