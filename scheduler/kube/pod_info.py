"""A pod that waits for a node, with all fields that plugins read, checked once.

`read_pod_info` returns a `PodInfo`, or a `Refused` with the reason: what is malformed, or what the pod uses that is not
supported. Only a change of the pod itself can help a rejected pod.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import msgspec

from mooring import names
from mooring.annotations.request import MOST_INTERFACES, PodRequest, VfRequest, read_request
from mooring.annotations.run_time import read_run_time
from mooring.errors import AnnotationError
from scheduler.constraints.kinds import NONE, Kinds, Wish, asked_kinds
from scheduler.kube.group import GroupKey, GroupMembership, read_membership
from scheduler.kube.host_ports import NO_PORTS, HostPorts, host_ports, pack_ports
from scheduler.kube.objects import NodeSelectorTerm, Pod, PodSpec
from scheduler.kube.outcomes import Refused
from scheduler.kube.resources import (
    MOST_AMOUNTS,
    MOST_RESOURCES,
    amount_count,
    container_sides,
    parse_resources,
    pod_requests,
    scored_requests,
)
from scheduler.kube.selection.affinity import NO_AFFINITY, AffinityInfo, read_affinity_info
from scheduler.kube.selection.spread_constraints import TopologySpreadConstraint, read_constraints
from scheduler.kube.storage_objects import ClaimUse, read_claims

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
# What pods of equal requests share: their amounts and ports, by a text of at most so many bytes.
_encode_use = msgspec.msgpack.Encoder().encode
_shared_use = lru_cache(maxsize=1024)(msgspec.msgpack.Decoder(tuple[dict[str, int], dict[str, int], HostPorts]).decode)
_SHORT = 512


class PodInfo(msgspec.Struct, frozen=True):
    """A pod to place: the resources that it requests by name (cpu in thousandths), and its request for VFs.

    ``scored`` are the amounts for scoring nodes, and ``affinity_info`` is what other pods' terms read. Pods of equal
    ``shape`` have equal requests to a node.
    """

    pod: Pod
    resources: Mapping[str, int]
    scored: Mapping[str, int] = msgspec.field(default_factory=dict)
    affinity_info: AffinityInfo = NO_AFFINITY
    ports: HostPorts = NO_PORTS
    spread: tuple[TopologySpreadConstraint, ...] = ()
    request: PodRequest | None = None
    shape: bytes = b""
    # Its requests for other kinds of resource, by the kinds' names.
    wishes: tuple[Wish, ...] = ()
    volumes: tuple[ClaimUse, ...] = ()
    membership: GroupMembership | None = None
    # The priority of the group with which it is scheduled, if that is not its own.
    group_priority: int | None = None
    # For how many seconds it runs at most; None for ever.
    runs_s: int | None = None

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0

    @property
    def owner(self) -> str | GroupKey:
        """The owner of its reservation: the group with which it is scheduled, or the pod itself, by uid."""
        return self.uid if self.membership is None else self.membership.key

    @property
    def labels(self) -> Mapping[str, str]:
        return self.pod.metadata.labels or {}

    @property
    def interfaces(self) -> tuple[VfRequest, ...]:
        return self.request.interfaces if self.request else ()


# Requirements and tolerations are compared with every node; no real pod has as many. Numeric comparisons are evaluated
# for each value of a label.
MOST_REQUIREMENTS, MOST_COMPARISONS, MOST_TOLERATIONS = 1000, 16, 1000
# Host ports are compared with those of the pods of every node.
MOST_PORTS = 4096
MOST_CONTAINERS = 1000
_ON_NODES = "node requirements"


def read_pod_info(pod: Pod, kinds: Kinds = NONE, *, has_claims_allocated: bool = False) -> PodInfo | Refused:
    """Read everything that the plugins need; the result is one of these two types, whatever the pod contains.

    ``has_claims_allocated`` if another scheduler allocates the pod's resource claims.
    """
    spec = pod.spec
    if reason := next(_excesses(spec), ""):
        return Refused(reason)
    try:
        affinity_info, spread, volumes = read_affinity_info(pod), read_constraints(pod), read_claims(pod)
        membership = read_membership(pod)
    except ValueError as unreadable:
        return Refused(str(unreadable))
    try:
        resources, ports = pod_requests(spec), pack_ports(host_ports(spec))
        scored = scored_requests(spec, resources)
        if len(text := _encode_use((resources, scored, ports))) <= _SHORT:
            resources, scored, ports = _shared_use(text)
        if (request := _request(pod)) is not None:
            request = _in_namespace(request, pod.metadata.namespace)
        interfaces = len(request.interfaces) if request else 0
        _check_limits(resources, request)
        runs_s = run_time_of(pod, membership)
        wishes = kinds.wishes(pod.annotations, interfaces, resources, partial(container_sides, spec))
        shape = _shape(pod, resources, scored, ports, interfaces)
    except AnnotationError as unreadable:
        return Refused(str(unreadable))
    except ValueError as unreadable:
        return Refused(f"container resources cannot be read: {unreadable}")
    if len(resources) > MOST_RESOURCES:
        return Refused(f"{len(resources)} kinds of resource are requested; the limit is {MOST_RESOURCES}")
    pod_info = PodInfo(
        pod, resources, scored, affinity_info, ports, spread, request, shape, wishes, volumes, membership, runs_s=runs_s
    )
    reason = next(_conflicts(pod_info, has_claims_allocated=has_claims_allocated), "")
    return Refused(reason) if reason else pod_info


def run_time_of(pod: Pod, membership: GroupMembership | None) -> int | None:
    """Return for how many seconds a pod runs at most: as it or its group declares, and until its deadline.

    Raise AnnotationError.
    """
    run_time, deadline = read_run_time(pod.annotations), pod.spec.active_deadline_seconds
    if run_time is None and membership is not None:
        run_time = membership.request.runs
    return min((seconds for seconds in (run_time, deadline) if seconds is not None), default=None)


def _excesses(spec: PodSpec) -> Iterator[str]:
    """Yield which parts of a pod exceed the limits of what is read."""
    if (containers := len(spec.all_containers)) > MOST_CONTAINERS:
        yield f"{containers} containers exceed the limit of {MOST_CONTAINERS}"
    terms = list(_node_terms(spec))
    expressions = [requirement for term in terms for requirement in term.match_expressions or ()]
    fields = sum(len(term.match_fields or ()) for term in terms)
    comparisons = sum(requirement.operator in ("Gt", "Lt") for requirement in expressions)
    for count, subject, limit in (
        (amount_count(spec), "resource amounts", MOST_AMOUNTS),
        (sum(1 for _ in host_ports(spec)), "host ports", MOST_PORTS),
        (len(spec.tolerations or ()), "tolerations", MOST_TOLERATIONS),
        (len(spec.node_selector or ()) + len(terms) + len(expressions) + fields, _ON_NODES, MOST_REQUIREMENTS),
        (comparisons, f"{_ON_NODES} with Gt or Lt", MOST_COMPARISONS),
    ):
        if count > limit:
            yield f"{count} {subject} exceed the limit of {limit}"


def _node_terms(spec: PodSpec) -> Iterator[NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity and affinity.required:
        yield from affinity.required.node_selector_terms or ()
    if affinity:
        yield from (preference.preference for preference in affinity.preferred or ())


def _shape(
    pod: Pod, resources: Mapping[str, int], scored: Mapping[str, int], ports: HostPorts, interfaces: int
) -> bytes:
    """Return a key of all fields of a pod that plugins read which evaluate each node by itself.

    The number of interfaces follows from its annotations, unless it requests them by a container's resource.
    """
    spec = pod.spec
    return _encode(
        (
            *(resources, scored, sorted(ports), interfaces, spec.node_name, spec.node_selector, spec.tolerations),
            spec.affinity.node_affinity if spec.affinity else None,
            spec.images,
            [volume.image.reference for volume in spec.volumes or () if volume.image],
            [pod.annotations.get(key) for key in (names.REQUEST, names.RIT_REQUEST, names.PLACEMENT)],
            asked_kinds(pod.annotations),
            spec.runtime_class_name,
            # Access to a PF's VFs depends on the namespace.
            pod.metadata.namespace if interfaces else None,
        )
    )


def without_identity(pod_info: PodInfo) -> PodInfo:
    """Return a pod without its node selector, MACs and GUIDs, which members of a group may have each of their own."""
    request, pod = pod_info.request, pod_info.pod
    if request is not None:
        interfaces = [
            replace(interface, settings=replace(interface.settings, mac=None, guid=None))
            for interface in request.interfaces
        ]
        request = replace(request, interfaces=tuple(interfaces))
    spec = msgspec.structs.replace(pod.spec, node_selector=None)
    annotations = {key: text for key, text in pod.annotations.items() if key not in (names.REQUEST, names.RIT_REQUEST)}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    pod = msgspec.structs.replace(pod, metadata=metadata, spec=spec)
    shape = _shape(pod, pod_info.resources, pod_info.scored, pod_info.ports, len(pod_info.interfaces))
    return msgspec.structs.replace(pod_info, pod=pod, request=request, shape=shape + repr(request).encode())


def _request(pod: Pod) -> PodRequest | None:
    """Return a pod's request for VFs, by its annotation or by the resources that its containers limit."""
    request = read_request(pod.annotations)
    if request is None:
        return _request_by_resource(pod.spec)
    key = names.REQUEST if names.REQUEST in pod.annotations else names.RIT_REQUEST
    containers = pod.spec.all_containers
    container_names = {container.name for container in containers}
    # The containers that limit the device resource of rit-k8s-rdma; None (all of them) if none does.
    device_names = [container.name for container in containers if names.RIT_DEVICES in container.limits]
    device_containers = tuple(device_names) or None
    if device_containers is None and not any(interface.containers for interface in request.interfaces):
        return request
    interfaces = []
    for index, interface in enumerate(request.interfaces):
        if strange := sorted(set(interface.containers or ()) - container_names):
            raise AnnotationError(key, f"[{index}].containers", f"{strange[0]!r} is not a container of this pod")
        interfaces.append(replace(interface, containers=interface.containers or device_containers))
    return replace(request, interfaces=tuple(interfaces))


@lru_cache(maxsize=256)
def _in_namespace(request: PodRequest, namespace: str) -> PodRequest:
    """Return one instance of equal requests, so that results can be looked up by identity."""
    return replace(request, namespace=namespace)


def _request_by_resource(spec: PodSpec) -> PodRequest | None:
    """Return hustcat's form of request: for each container as many plain VFs as its limit of the device resource."""
    interfaces: list[VfRequest] = []
    for container in spec.containers or ():
        vf_count = parse_resources(container.limits).get(names.HUSTCAT_VFS, 0)
        if (total := len(interfaces) + vf_count) > MOST_INTERFACES:
            rule = f"{total} VFs exceed the limit of {MOST_INTERFACES} for one pod"
            raise AnnotationError(names.REQUEST, "", f"resource {names.HUSTCAT_VFS!r}: {rule}")
        interfaces += [VfRequest(containers=(container.name,))] * vf_count
    return PodRequest(tuple(interfaces)) if interfaces else None


def _check_limits(resources: Mapping[str, int], request: PodRequest | None) -> None:
    """Reject a pod whose limits of VFs or Mb/s differ from its request, because a quota would count wrongly."""
    interfaces = request.interfaces if request else ()
    reserved_mbps = sum(interface.settings.min_tx_rate or 0 for interface in interfaces)
    for name, number, fact in (
        (names.RIT_VFS, len(interfaces), "the pod has {} interface(s)"),
        (names.RESERVED_MBPS, reserved_mbps, "the pod's interfaces reserve {} Mb/s"),
    ):
        if (limit := resources.get(name, number)) != number:
            rule = f"{fact.format(number)}, but its containers limit {name!r} to {limit}: the numbers must be equal"
            raise AnnotationError(names.REQUEST, "", rule)


def _conflicts(pod_info: PodInfo, *, has_claims_allocated: bool) -> Iterator[str]:
    spec = pod_info.pod.spec
    if pod_info.interfaces and spec.host_network:
        yield "a pod with hostNetwork cannot get VFs: it has no network namespace of its own"
    if not pod_info.interfaces and names.ASSIGNMENT in pod_info.pod.annotations:
        yield f"annotation {names.ASSIGNMENT!r} is written by the scheduler only, and this pod requests no VF"
    if spec.resource_claims and not has_claims_allocated:
        yield "only kube-scheduler allocates resource claims: let it schedule this pod, with VFs from the extender"
    if pod_info.request is not None and pod_info.request.vfs and not spec.resource_claims:
        yield f"annotation {names.PLACEMENT!r}.vfs: the pod has no resource claims"
