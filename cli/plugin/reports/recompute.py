"""Schedule a pod as the scheduler would now, from the objects of the API. Pure: time is an argument.

These are the decisions of a scheduler that has just started. It lacks what only the running scheduler has: assumed pods
that are not bound yet, the VFs that it keeps for a nominated pod, and constraints that other packages add.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cli.plugin.reports.explain import DecisionReport
from cli.plugin.reports.groups import some
from mooring.kube.events import Changed, Identity
from mooring.natural_order import natural
from scheduler.cache.assigned_pod import AssignedPod, read_assigned_pod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache, Member
from scheduler.cache.node_info import read_node
from scheduler.cache.volumes.volume_cache import PATHS as STORED
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.cycle import SchedulingCycle, ignore_phase
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Report
from scheduler.cycle.node_dry_run import assigned_pod_for
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.reserved_room import Owner, Reservation, rooms_of
from scheduler.kube.group import GroupKey, membership_if_readable
from scheduler.kube.objects import Node, Pod, RuntimeClass
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.pending.groups.pending_groups import NO_OPTIONS, GroupOptions
from scheduler.pending.groups.promises import promise_in
from scheduler.pending.reservations import Reservations
from scheduler.placement.gpus import gpu_kind
from scheduler.queue.queue import Queue
from scheduler.state.cluster_objects import PATHS as AROUND
from scheduler.state.cluster_objects import ClusterObjects
from scheduler.state.machine import Machine

PATHS: Mapping[type[Any], str] = {Node: "/api/v1/nodes", Pod: "/api/v1/pods", **AROUND, **STORED}


def recompute(objects: Mapping[type[Any], Sequence[Any]], uid: str, now: float) -> DecisionReport:
    """Return the decision about the pod ``uid``, with the names of all nodes that each reason refuses."""
    pod = next((candidate for candidate in objects[Pod] if candidate.metadata.uid == uid), None)
    if pod is None:
        return DecisionReport("none", "the pod was deleted", {})
    kinds = Kinds([gpu_kind()])
    pod_info = read_pod_info(pod, kinds)
    if isinstance(pod_info, Refused):
        return DecisionReport("recomputed", pod_info.reason, {"v": 1})
    decision = _scheduling_cycle(objects, pod.spec.scheduler_name, kinds, now).decide(pod_info, now)
    found = f"would be bound to {decision.assigned.node}" if isinstance(decision, Bind) else decision.reason
    if pod_info.membership is not None:
        found = f"without its group {pod_info.membership.title}: {found}"
    return DecisionReport("recomputed", found, decision.why)


def recompute_group(
    objects: Mapping[type[Any], Sequence[Any]], key: GroupKey, scheduler: str, now: float
) -> DecisionReport:
    """Return the decision about all waiting members of a group together."""
    return _decide_group(_machine(objects, scheduler, now, NO_OPTIONS, key), key, now)


def forecast(objects: Mapping[type[Any], Sequence[Any]], key: GroupKey, scheduler: str, now: float) -> str:
    """Return when a waiting group starts by the declared run times, if nothing comes before it; empty if unknown."""
    machine = _machine(objects, scheduler, now, GroupOptions(backfill=True), key)
    if key.entry not in machine.queue.uids():
        return ""
    machine.pending_groups.reserve_room_for(key, now)
    return promise_in(f" {_decide_group(machine, key, now).message}")


def _machine(
    objects: Mapping[type[Any], Sequence[Any]], scheduler: str, now: float, options: GroupOptions, key: GroupKey
) -> Machine:
    """Return a machine that knows the objects; the group's members have no message yet."""
    machine = Machine(scheduler, kinds=Kinds([gpu_kind()]), group_options=options)
    machine.reservations.now = now
    for kind, items in objects.items():
        for item in items:
            # The scheduler does not report again what a condition of the member already has.
            is_member = kind is Pod and (of := membership_if_readable(item)) is not None and of.key == key
            shown = _without_conditions(item) if is_member and not item.spec.node_name else item
            machine.handle(kind, Changed(identity_of(item), shown), now)
    return machine


def _decide_group(machine: Machine, key: GroupKey, now: float) -> DecisionReport:
    waiting = machine.group_cache.get(key)
    if waiting is None or not waiting.count("waiting"):
        return DecisionReport("none", "no member waits for this scheduler", {})
    uids = waiting.of("waiting")
    group = machine.pending_groups.get(key)
    if group is not None and group.message:
        return DecisionReport("recomputed", f"group {waiting.title}: {group.message}", {"v": 1})
    while machine.nominations.take_over(now):
        pass
    # Other pods and groups in the queue would be decided about first, or between two portions of this decision.
    for entry in set(machine.queue.uids()) - {key.entry}:
        machine.queue.delete(entry)
    popped = machine.queue.pop(now)
    assert popped == key.entry, "a group that has just become known is ready"
    machine.group_scheduling.begin(key)
    while (found := machine.group_scheduling.proceed(now, ignore_phase)) is None:
        pass
    report = next(
        (
            instruction
            for instruction in found
            if isinstance(instruction, Report) and instruction.pod.metadata.uid in uids
        ),
        None,
    )
    where = [one for uid in uids if (one := machine.cache.assigned(uid)) is not None]
    if report is not None and not where:
        return DecisionReport("recomputed", report.message, report.why)
    nodes = sorted({place.node for place in where}, key=natural)
    text = f"{len(where)} of {len(uids)} waiting members would be bound, to {some(nodes)}"
    return DecisionReport("recomputed", text, {"v": 1})


def _without_conditions(pod: Pod) -> Pod:
    status = msgspec.structs.replace(pod.status, conditions=None)
    return msgspec.structs.replace(pod, status=status)


def _scheduling_cycle(
    objects: Mapping[type[Any], Sequence[Any]], scheduler: str, kinds: Kinds, now: float
) -> SchedulingCycle:
    """Return a scheduling cycle with all listed objects."""
    cache = Cache(kinds)
    reservations, budgets = Reservations(Queue()), Budgets()
    group_cache = GroupCache()
    preemption = Preemption(cache, reservations, budgets, group_cache)
    live = [pod for pod in objects[Pod] if pod.metadata.uid and not pod.is_over]
    for pod in live:
        if pod.spec.node_name:
            cache.put(read_assigned_pod(pod)[0], now)
            membership = membership_if_readable(pod) if pod.metadata.deletion_timestamp is None else None
            if membership is not None:
                group_cache.put(pod.metadata.uid, membership, Member("placed"))
    # After the pods, so that what a node has left is computed once.
    for node in objects[Node]:
        _put_node(cache, node, now)
    cluster_objects = ClusterObjects(cache.pod_counts, cache.nodes, budgets)
    for around in (*AROUND, RuntimeClass):
        for item in objects.get(around, ()):
            cluster_objects.take(around, Changed(identity_of(item), item))
    for stored in STORED:
        for item in objects[stored]:
            cache.volumes.take(stored, Changed(identity_of(item), item))
    for reservation in _reservations(live, scheduler, kinds):
        reservations.add(reservation)
    return SchedulingCycle(cache, reservations, preemption, max_names=len(objects[Node]))


def _put_node(cache: Cache, node: Node, now: float) -> None:
    try:
        node_info, _ = read_node(node, None, now)
    except ValueError:
        # As in the scheduler: an unreadable object counts as absent.
        return
    cache.put_node(node_info)


def _reservations(pods: Iterable[Pod], scheduler: str, kinds: Kinds) -> Iterable[Reservation]:
    """Yield the room that is reserved for the scheduler's pods."""
    rooms: dict[Owner, list[AssignedPod]] = {}
    for pod in pods:
        node = pod.status.nominated_node_name
        if node and not pod.spec.node_name and pod.spec.scheduler_name == scheduler:
            pod_info = read_pod_info(pod, kinds)
            if isinstance(pod_info, PodInfo):
                rooms.setdefault(pod_info.owner, []).append(assigned_pod_for(pod_info, node))
    yield from (Reservation(owner, rooms_of(assigned_pods)) for owner, assigned_pods in rooms.items())


def identity_of(item: Any) -> Identity:
    """Return the identity of an object of any kind."""
    known = item.metadata
    return Identity(known.name, known.namespace, known.uid, known.resource_version)
