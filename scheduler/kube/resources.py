"""Amounts of resources: quantities as integers, and what a pod's containers need together.

Quantities (``1500m``, ``2Gi``, ``1e3``) are rounded up and limited to 64 bits, as in apimachinery's
pkg/api/resource/quantity.go. Sums of requests, init containers, sidecars (KEP-753), overhead and pod-level resources
(KEP-2837) follow PodRequests in k8s.io/component-helpers/resource.

While the kubelet resizes a container in place (GA in Kubernetes 1.35), of each resource the container holds the largest
of three amounts: what the spec requests, what the kubelet has allocated, and what it runs with. Once the kubelet
reports the resize as infeasible, the spec no longer counts. Source: determineEffectiveRequests in the same package.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Literal

import msgspec

from mooring.parsing import shorten
from scheduler.constraints.protocol import ContainerSide
from scheduler.kube.objects import Container, ContainerStatus, Pod, PodSpec, PodStatus, Quantities, Quantity, Resources

Amounts = Mapping[str, int]
NO_DEFAULTS: Mapping[str, int] = {}
_NUMBER = re.compile(
    r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", re.A
)
_LARGEST = 2**63 - 1
_DECIMAL: Mapping[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Mapping[str, int] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# The largest amount of a resource, 8 PiB or this many units: more than a node has, and the sum over all pods of a node
# fits into 64 bits.
MAX_AMOUNT = 2**53
# A pod that requests more kinds of resource is rejected: each needs one of 64 bits when nodes are evaluated, and no
# real pod has as many. A bound pod may have more, and its use is counted.
MOST_RESOURCES = 60
# A pod that names more amounts, of any kinds, is rejected without reading them: reading one takes a few microseconds.
MOST_AMOUNTS = 4096
# Pod-level resources cover these only; extended resources stay with the containers.
_POD_LEVEL = ("cpu", "memory", "hugepages-")
# The amounts for scoring that a container without a request has, so that such pods spread too: thousandths of a cpu,
# and bytes. Source: kube-scheduler's util.GetNonzeroRequests.
_SCORED_DEFAULTS: Mapping[str, int] = {"cpu": 100, "memory": 200 << 20}
# The names under which these amounts are added up, in addition to the requested ones.
SCORE_NAMES: Mapping[str, str] = {"cpu": "scored cpu", "memory": "scored memory"}


@lru_cache(maxsize=8192)
def parse_quantity(quantity: Quantity, parts: int = 1) -> int:
    """Return a quantity in units of 1/``parts`` (1000 for cpu), rounded up; raise ValueError."""
    match = _NUMBER.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{shorten(quantity)} is not a quantity such as '500m' or '2Gi'")
    sign, digits, suffix = match[1], match[2], match[3] or ""
    integer_digits, _, fraction = digits.partition(".")
    units, power = _scale(suffix)
    amount, power = int(integer_digits + fraction) * units * parts, power - len(fraction)
    result: int = min(amount * 10**power if power >= 0 else -(-amount // 10**-power), _LARGEST)
    return -result if sign == "-" else result


def _scale(suffix: str) -> tuple[int, int]:
    """Return the meaning of a suffix: a factor, and a power of ten."""
    if suffix in _BINARY:
        return 1 << _BINARY[suffix], 0
    return 1, _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])


def parse_resources(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return amounts by resource, cpu in thousandths, everything else in units, at most `MAX_AMOUNT`.

    Raise ValueError naming the resource, also for a negative amount.
    """
    amounts = {}
    for name, quantity in (quantities or {}).items():
        try:
            amount = parse_quantity(quantity, 1000 if name == "cpu" else 1)
        except ValueError as unreadable:
            raise ValueError(f"resource {shorten(name)}: {unreadable}") from None
        if amount < 0:
            raise ValueError(f"resource {shorten(name)}: {shorten(quantity)} is below 0")
        amounts[name] = min(amount, MAX_AMOUNT)
    return amounts


def amount_count(spec: PodSpec) -> int:
    """Return how many amounts a pod names."""
    resources = (spec.resources, *(container.resources for container in spec.all_containers))
    counts = (len(part.requests or ()) + len(part.limits or ()) for part in resources if part is not None)
    return sum(counts) + len(spec.overhead or ())


def container_sides(spec: PodSpec) -> tuple[ContainerSide, ...]:
    """Return the containers' limits in the form for constraints; raise ValueError for an unreadable quantity."""

    def side(container: Container, role: Literal["init", "sidecar", "main"]) -> ContainerSide:
        return ContainerSide(container.name, parse_resources(container.limits), role)

    init_sides = (
        side(container, "sidecar" if container.is_sidecar else "init") for container in spec.init_containers or ()
    )
    return (*init_sides, *(side(container, "main") for container in spec.containers or ()))


def scored_requests(spec: PodSpec, requests: Amounts) -> dict[str, int]:
    """Return the cpu and memory of a pod with these requests for scoring."""
    resources = [container.resources for container in spec.all_containers]
    if resources and all(part and _SCORED_DEFAULTS.keys() <= (part.requests or {}).keys() for part in resources):
        return {name: requests[name] for name in _SCORED_DEFAULTS}
    total = pod_requests(spec, _SCORED_DEFAULTS, _SCORED_DEFAULTS.keys())
    return {name: total.get(name, 0) for name in _SCORED_DEFAULTS}


def pod_requests(spec: PodSpec, defaults: Amounts = NO_DEFAULTS, names: Set[str] | None = None) -> dict[str, int]:
    """Return what the pod needs at its peak; raise ValueError for an unreadable quantity.

    ``defaults`` are used for what a container does not request. With ``names``, no other resources are read.
    """
    total: dict[str, int] = {}
    for container in spec.containers or ():
        add_to(total, _container_requests(container, defaults, names))
    sidecars, starting_peak = _init_requests(spec.init_containers or (), defaults, names)
    add_to(total, sidecars)
    for name, amount in starting_peak.items():
        total[name] = max(total.get(name, 0), amount)
    pod_level = _requests(spec.resources, names) if spec.resources is not None else {}
    total |= {name: amount for name, amount in pod_level.items() if name.startswith(_POD_LEVEL)}
    add_to(total, parse_resources(_selection(spec.overhead, names)))
    return {name: min(amount, MAX_AMOUNT) for name, amount in total.items()}


def _init_requests(
    containers: Iterable[Container], defaults: Amounts, names: Set[str] | None
) -> tuple[Amounts, Amounts]:
    """Return what the sidecars need together, and the peak while the pod is starting.

    The peak has only resources that an init container requests: for all others the sidecars need most once all of them
    run.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:
        requests = _container_requests(container, defaults, names)
        if container.is_sidecar:
            add_to(sidecars, requests)
        else:
            for name, amount in requests.items():
                peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + amount)
    return sidecars, peak


def _container_requests(container: Container, defaults: Amounts, names: Set[str] | None) -> Amounts:
    resources = container.resources
    # The API server sends ``resources: {}`` if a container names none, and a pod may have ten thousand of them.
    if resources is None or not (resources.requests or resources.limits):
        return defaults
    return {**defaults, **_requests(resources, names)}


def _requests(resources: Resources, names: Set[str] | None) -> dict[str, int]:
    """Return the requests; a limit without a request counts as one, as in the API server's defaulting."""
    return parse_resources({**_selection(resources.limits, names), **_selection(resources.requests, names)})


def _selection(quantities: Quantities | None, names: Set[str] | None) -> Quantities:
    if quantities is None or names is None:
        return quantities or {}
    return {name: quantities[name] for name in sorted(quantities.keys() & names)}


def add_to(total: dict[str, int], amounts: Amounts) -> None:
    """Add amounts to a total in place: building a new sum for each of many containers takes quadratic time."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def spec_in_force(pod: Pod) -> PodSpec:
    """Return the pod's spec with the requests that its node has to keep free.

    The spec is returned as it is if the status shows no other amounts. Raise ValueError for an unreadable quantity.
    """
    spec, status = pod.spec, pod.status
    container_statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    if not container_statuses and status.resources is None:
        return spec
    pending = pod.condition("PodResizePending")
    is_infeasible = pending is not None and pending.reason == "Infeasible"
    statuses = {container.name: container for container in container_statuses if container.resources is not None}

    def in_force(container: Container) -> Container:
        resources = _resources_in_force(container.resources, statuses.get(container.name), is_infeasible)
        if resources is container.resources:
            return container
        return msgspec.structs.replace(container, resources=resources)

    containers = spec.containers and [in_force(container) for container in spec.containers]
    # Only sidecars are resized: other init containers have ended, or still have what the spec requests.
    init_containers = spec.init_containers and [
        in_force(container) if container.is_sidecar else container for container in spec.init_containers
    ]
    resources = spec.resources and _resources_in_force(spec.resources, status, is_infeasible)
    if (containers, init_containers, resources) == (spec.containers, spec.init_containers, spec.resources):
        return spec
    return msgspec.structs.replace(spec, containers=containers, init_containers=init_containers, resources=resources)


def _resources_in_force(
    in_spec: Resources | None, status: ContainerStatus | PodStatus | None, is_infeasible: bool
) -> Resources | None:
    """Return the amounts in force; the same object if they are those of the spec, or if the status has none."""
    if status is None or status.resources is None:
        return in_spec
    # A limit without a request counts as one, as by the API server's defaulting. In a status it does not.
    spec_amounts = {} if in_spec is None else {**(in_spec.limits or {}), **(in_spec.requests or {})}
    amounts_in_status = [amounts for amounts in (status.resources.requests, status.allocated_resources) if amounts]
    if all(amounts == spec_amounts for amounts in amounts_in_status) and (amounts_in_status or not is_infeasible):
        return in_spec
    return Resources(requests=_largest(amounts_in_status if is_infeasible else [spec_amounts, *amounts_in_status]))


def _largest(alternatives: Sequence[Quantities]) -> Quantities:
    """Return each resource's largest quantity, as it is written."""
    largest: Quantities = {}
    amounts: dict[str, int] = {}
    for quantities in alternatives:
        for name, amount in parse_resources(quantities).items():
            if amount > amounts.get(name, -1):
                largest[name], amounts[name] = quantities[name], amount
    return largest
