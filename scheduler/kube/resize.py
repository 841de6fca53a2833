"""What the containers of a bound pod hold while the kubelet resizes them in place.

Per container and resource this is the largest of three amounts: what the spec requests, what the kubelet has allocated,
and what the container runs with. Once the kubelet reports the resize as infeasible, the spec no longer counts.
Source: PodRequests and determineEffectiveRequests in k8s.io/component-helpers/resource; GA in Kubernetes 1.35.
"""

from collections.abc import Mapping, Sequence

import msgspec

from scheduler.kube.objects import Container, ContainerStatus, Pod, PodSpec, Quantities, Resources
from scheduler.kube.quantity import parse_resources


def spec_in_force(pod: Pod) -> PodSpec:
    """Return the pod's spec with the requests that its node has to keep free.

    The spec is returned as it is if the status shows no other amounts. Raise ValueError for an unreadable quantity.
    """
    spec, status = pod.spec, pod.status
    statuses = {
        container.name: container
        for container in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        if container.resources is not None
    }
    pod_level = None if spec.resources is None else status.resources
    if not statuses and pod_level is None:
        return spec
    infeasible = is_resize_infeasible(pod)
    changes = {
        "containers": _containers_in_force(spec.containers, statuses, infeasible),
        # Only sidecars are resized: other init containers have ended, or still have what the spec requests.
        "init_containers": _containers_in_force(spec.init_containers, statuses, infeasible, restart_policy="Always"),
        "resources": _resources_in_force(spec.resources, pod_level, status.allocated_resources, infeasible),
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    return msgspec.structs.replace(spec, **changes) if changes else spec


def is_resize_infeasible(pod: Pod) -> bool:
    """Return whether the kubelet has reported that the node can never fit the resize."""
    pending = pod.condition("PodResizePending")
    return pending is not None and pending.reason == "Infeasible"


def _containers_in_force(
    containers: Sequence[Container] | None,
    statuses: Mapping[str, ContainerStatus],
    infeasible: bool,
    restart_policy: str | None = None,
) -> list[Container] | None:
    """Return the containers, those that have a status with the amounts in force; None if nothing differs."""
    in_force, differs = [], False
    for container in containers or ():
        status = statuses.get(container.name)
        if status is not None and restart_policy in (None, container.restart_policy):
            resources = _resources_in_force(
                container.resources, status.resources, status.allocated_resources, infeasible
            )
            if resources is not None:
                container, differs = msgspec.structs.replace(container, resources=resources), True
        in_force.append(container)
    return in_force if differs else None


def _resources_in_force(
    requested: Resources | None, actual: Resources | None, allocated: Quantities | None, infeasible: bool
) -> Resources | None:
    """Return the amounts in force; None if they are the requested ones, or if the status has none."""
    if actual is None:
        return None
    # A limit without a request counts as one, as by the API server's defaulting. In a status it does not.
    wanted = {} if requested is None else {**(requested.limits or {}), **(requested.requests or {})}
    shown = [amounts for amounts in (actual.requests, allocated) if amounts]
    if all(amounts == wanted for amounts in shown) and (shown or not infeasible):
        return None
    return Resources(requests=_largest(shown if infeasible else [wanted, *shown]))


def _largest(every: Sequence[Quantities]) -> Quantities:
    """Return each resource's largest quantity, as it is written."""
    largest: Quantities = {}
    amounts: dict[str, int] = {}
    for quantities in every:
        for name, amount in parse_resources(quantities).items():
            if amount > amounts.get(name, -1):
                largest[name], amounts[name] = quantities[name], amount
    return largest
