"""A pod on a node: what it uses there, read from its API object; and these pods by node."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Literal, TypeVar

import msgspec

from mooring import names
from mooring.annotations.assignment import Assignment, verified_assignment
from mooring.annotations.rates import PodRates, verified_rates
from scheduler.cache.counters import shift
from scheduler.kube.group import membership_if_readable
from scheduler.kube.host_ports import NO_PORTS, HostPorts, host_ports, pack_ports
from scheduler.kube.objects import Condition, OwnedMetadata, Pod, PodSpec
from scheduler.kube.pod_info import MOST_PORTS, run_time_of
from scheduler.kube.resources import (
    MOST_AMOUNTS,
    NO_DEFAULTS,
    Amounts,
    amount_count,
    pod_requests,
    scored_requests,
    spec_in_force,
)
from scheduler.kube.selection.affinity import AffinityInfo, read_affinity_info, without_terms
from scheduler.kube.storage_objects import ClaimUse, read_claims
from scheduler.placement.memo import Memo
from scheduler.placement.vf_accounting import Claim

# The reason of the condition DisruptionTarget of a pod that a scheduler preempts.
PREEMPTED = "PreemptionByScheduler"


# How a pod differs from its previous state: not at all, only in its affinity info (its labels, or that it terminates),
# or in what it uses.
Difference = Literal["", "affinity", "use"]
Part = Literal["pod", "assignment"]
T = TypeVar("T")


@dataclass(slots=True)
class AssignedPod:
    """A pod on a node: what it uses there, and the amounts for scoring nodes (``scored``).

    Once it is in the cache nothing of it changes except ``assumed``, which is true until the watch shows the pod bound.
    ``affinity_info`` is what plugins about other pods read. ``preempted`` is true while the pod is deleted for a pod
    with higher priority. ``started`` is RFC 3339, empty until the pod has started. A pod that ``always_restarts`` never
    ends by itself.
    """

    uid: str
    pod: str
    node: str
    resources: Amounts = field(default_factory=dict)
    scored: Amounts = field(default_factory=dict)
    ports: HostPorts = NO_PORTS
    assignment: Assignment | None = None
    assumed: bool = field(default=False, compare=False)
    affinity_info: AffinityInfo | None = None
    volumes: tuple[ClaimUse, ...] = ()
    priority: int = 0
    preempted: bool = False
    started: str = field(default="", compare=False)
    always_restarts: bool = field(default=True, compare=False)
    # For how many seconds it runs at most; None for ever.
    runs_s: int | None = field(default=None, compare=False)
    # The pod's resourceVersion when it was read; empty while it is assumed.
    version: str = field(default="", compare=False)
    # The rates that were changed after the assignment.
    rates: PodRates | None = field(default=None, compare=False)
    # The assignment with what its VFs reserve, if that differs from its own rates; maintained by the cache.
    claim_assignment: Assignment | None = field(default=None, compare=False)

    @property
    def claim(self) -> Claim | None:
        return None if self.assignment is None else Claim(self.uid, self.claim_assignment or self.assignment, self.pod)

    @property
    def vf_count(self) -> int:
        return len(self.assignment.vfs) if self.assignment is not None else 0

    @property
    def reserved(self) -> tuple[int, ...]:
        """What each VF of the pod reserves, in Mb/s."""
        claim = self.claim
        return () if claim is None else tuple(vf.min_tx_rate for vf in claim.assignment.vfs)

    def differs(self, previous: "AssignedPod | None") -> Difference:
        if previous is None or _besides_affinity(self) != _besides_affinity(previous):
            return "use"
        return "" if self.affinity_info == previous.affinity_info else "affinity"


_besides_affinity = attrgetter(
    *(column.name for column in fields(AssignedPod) if column.compare and column.name != "affinity_info")
)


@dataclass(frozen=True, slots=True)
class UnreadablePart:
    """A part of a bound pod that cannot be read: which part, the broken rule as text, and the pod, node and reason."""

    part: Part
    event: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Reader:
    pod: Pod
    faults: list[UnreadablePart] = field(default_factory=list)

    def read(self, read_part: Callable[[], T], default: T, event: str, part: Part = "pod") -> T:
        try:
            return read_part()
        except ValueError as fault:
            self.note(event, str(fault), part)
            return default

    def note(self, event: str, reason: str, part: Part = "pod") -> None:
        uid, node = self.pod.metadata.uid, self.pod.spec.node_name or ""
        fields = {"pod": self.pod.key, "uid": uid, "node": node, "reason": reason}
        self.faults.append(UnreadablePart(part, event, fields))


def read_assigned_pod(
    pod: Pod, previous: AssignedPod | None = None, node_resources: Set[str] = frozenset()
) -> tuple[AssignedPod, list[UnreadablePart]]:
    """Return what a bound pod uses; parts that cannot be read count as nothing and are listed.

    ``previous`` is the pod's previous state in the cache. ``node_resources`` are the resources that nodes have: if a
    pod names more amounts than are read at once, only these count.
    """
    reader, use = _Reader(pod), _use_of(pod, node_resources)
    assignment, rates = _read_claims(reader, previous)
    if use.error:
        reader.note("pod's resources cannot be read", use.error)
    affinity_info = reader.read(partial(read_affinity_info, pod), None, "pod's affinity cannot be read")
    assigned_pod = AssignedPod(
        uid=pod.metadata.uid,
        pod=pod.key,
        node=pod.spec.node_name or "",
        resources=use.resources,
        scored=use.scored,
        ports=use.ports,
        assignment=assignment,
        affinity_info=affinity_info or without_terms(pod),
        volumes=reader.read(partial(read_claims, pod), (), "pod's volumes cannot be read"),
        priority=pod.spec.priority or 0,
        preempted=pod.metadata.deletion_timestamp is not None and _mark(pod) is not None,
        started=pod.status.start_time or "",
        always_restarts=pod.spec.always_restarts,
        version=pod.metadata.resource_version,
        rates=rates,
        runs_s=_run_time(reader),
    )
    return assigned_pod, reader.faults


def _run_time(reader: _Reader) -> int | None:
    """Return for how many seconds a pod runs at most; one whose run time cannot be read never ends."""
    pod = reader.pod
    if names.RUNS not in pod.annotations and names.GROUP not in pod.annotations:
        return pod.spec.active_deadline_seconds
    return reader.read(lambda: run_time_of(pod, membership_if_readable(pod)), None, "pod's run time cannot be read")


def _read_claims(reader: _Reader, previous: AssignedPod | None) -> tuple[Assignment | None, PodRates | None]:
    """Return a pod's assignment and its changed rates; if one is removed or cannot be read, its previous value stays.

    An assignment that was only assumed does not stay: another scheduler may have bound the pod.
    """
    pod, uid, node = reader.pod, reader.pod.metadata.uid, reader.pod.spec.node_name or ""
    read_assignment = partial(verified_assignment, pod.annotations, uid, node)
    assignment = reader.read(read_assignment, None, "invalid assignment ignored", "assignment")
    if previous is None:
        rates = None
    else:
        is_kept = assignment is None and not previous.assumed and previous.node == node
        # An equal value is kept once.
        assignment = previous.assignment if is_kept or previous.assignment == assignment else assignment
        rates = previous.rates if previous.assignment == assignment else None
    if assignment is None or names.RATES not in pod.annotations:
        return assignment, rates
    read_rates = partial(verified_rates, pod.annotations[names.RATES], assignment)
    new_rates = reader.read(read_rates, rates, "invalid rates ignored", "assignment")
    is_older = rates is not None and new_rates is not None and rates.generation > new_rates.generation
    return assignment, rates if is_older else new_rates


@dataclass(frozen=True, slots=True)
class _Use:
    resources: Amounts
    scored: Amounts
    ports: HostPorts
    error: str = ""


# JSON accepts integers of any size.
_encode = msgspec.json.Encoder().encode
_uses = Memo[bytes, _Use](2048)
# Longer texts are rare and must not fill the memory; neither must texts made of many containers.
_SHORT, _FEW = 2048, 32
# Resources that every node has.
_COMMON_RESOURCES = frozenset({"cpu", "memory"})


def _use_of(pod: Pod, node_resources: Set[str]) -> _Use:
    """Return what the containers use; replicas have equal requests and share one value."""
    spec, is_large = pod.spec, amount_count(pod.spec) > MOST_AMOUNTS
    if not is_large:
        try:
            spec = spec_in_force(pod)
        except ValueError as unreadable:
            return _Use(NO_DEFAULTS, NO_DEFAULTS, _ports_of(spec), str(unreadable))
        is_large = spec is not pod.spec and amount_count(spec) > MOST_AMOUNTS
    if is_large or len(spec.containers or ()) + len(spec.init_containers or ()) > _FEW:
        return _read_use(spec, node_resources | _COMMON_RESOURCES)
    text = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
    return _read_use(spec) if len(text) > _SHORT else _uses.get(text) or _uses.keep(text, _read_use(spec))


def _read_use(spec: PodSpec, node_resources: Set[str] | None = None) -> _Use:
    ports = _ports_of(spec)
    resource_names = node_resources if amount_count(spec) > MOST_AMOUNTS else None
    try:
        resources = pod_requests(spec, names=resource_names)
        return _Use(resources, scored_requests(spec, resources), ports)
    except ValueError as unreadable:
        return _Use(NO_DEFAULTS, NO_DEFAULTS, ports, str(unreadable))


def _ports_of(spec: PodSpec) -> HostPorts:
    return pack_ports(islice(host_ports(spec), MOST_PORTS))


def mark_of(pod: Pod, scheduler_name: str) -> Condition | None:
    """Return the condition by which this scheduler marked a pod as a victim: its message begins with its name."""
    mark = _mark(pod)
    return mark if mark is not None and (mark.message or "").startswith(f"{scheduler_name}: ") else None


def _mark(pod: Pod) -> Condition | None:
    target = pod.condition("DisruptionTarget")
    return target if target is not None and target.status == "True" and target.reason == PREEMPTED else None


def pod_reference(assigned_pod: AssignedPod) -> Pod:
    """Return the part of a bound pod that writes about it need; the pod object itself is not kept."""
    namespace, _, name = assigned_pod.pod.partition("/")
    return Pod(OwnedMetadata(name, namespace, assigned_pod.uid, assigned_pod.version))


_NO_PODS: Mapping[str, AssignedPod] = {}


class PodsByNode:
    """The pods of a node, by uid, are replaced and not modified when they change: snapshots share them."""

    def __init__(self) -> None:
        self.by_uid: dict[str, AssignedPod] = {}
        self._on: dict[str, Mapping[str, AssignedPod]] = {}
        self._priorities = Counter[int]()

    def snapshot(self) -> "PodsByNode":
        """Return the current pods; pods that existed before are found by their nodes only."""
        snapshot = PodsByNode()
        snapshot._on, snapshot._priorities = self._on.copy(), self._priorities.copy()
        return snapshot

    def on(self, node: str) -> Mapping[str, AssignedPod]:
        return self._on.get(node, _NO_PODS)

    def lowest_priority(self) -> int | None:
        return min(self._priorities, default=None)

    def add(self, assigned_pods: Collection[AssignedPod]) -> None:
        by_node: dict[str, dict[str, AssignedPod]] = {}
        for assigned_pod in assigned_pods:
            by_node.setdefault(assigned_pod.node, {})[assigned_pod.uid] = assigned_pod
            self.by_uid[assigned_pod.uid] = assigned_pod
            shift(self._priorities, assigned_pod.priority, 1)
        for node, pods in by_node.items():
            self._on[node] = {**self.on(node), **pods}

    def replace(self, assigned_pod: AssignedPod) -> None:
        """Replace a pod's state, but neither its node nor its priority."""
        self.by_uid[assigned_pod.uid] = assigned_pod
        self._on[assigned_pod.node] = {**self.on(assigned_pod.node), assigned_pod.uid: assigned_pod}

    def remove(self, assigned_pod: AssignedPod) -> None:
        uid, node, priority = assigned_pod.uid, assigned_pod.node, assigned_pod.priority
        self.by_uid.pop(uid, None)
        shift(self._priorities, priority, -1)
        self._on[node] = {other_uid: pod for other_uid, pod in self._on[node].items() if other_uid != uid}
        if not self._on[node]:
            del self._on[node]

    def claims(self, node: str) -> list[Claim]:
        return [claim for assigned_pod in self.on(node).values() if (claim := assigned_pod.claim) is not None]

    def assignments(self, node: str) -> list[Assignment]:
        assignments = (assigned_pod.assignment for assigned_pod in self.on(node).values())
        return [assignment for assignment in assignments if assignment is not None]

    def ports(self, node: str) -> frozenset[HostPorts]:
        return frozenset(assigned_pod.ports for assigned_pod in self.on(node).values() if assigned_pod.ports)

    def check(self) -> None:
        pods = [(node, assigned_pod) for node, on_node in self._on.items() for assigned_pod in on_node.values()]
        assert {assigned_pod.uid: assigned_pod for _, assigned_pod in pods} == self.by_uid, "pods by node differ"
        assert all(assigned_pod.node == node for node, assigned_pod in pods), "a pod is listed on another node"
        assert self._priorities == Counter(pod.priority for pod in self.by_uid.values()), "priorities are miscounted"
