"""Apply watch events to the state: nodes, pods, and related objects. Pure: time is an argument.

An object that cannot be read is ignored, and reported once with the reason. An event requeues only the pods that it can
help.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mooring.kube.events import Change, Changed, Event, Identity, Removed, Synced, Unreadable
from scheduler.cache.assigned_pod import read_assigned_pod
from scheduler.cache.groups.group_cache import Member, MemberState
from scheduler.cache.node_info import read_node
from scheduler.cache.volumes import volume_cache
from scheduler.cycle.instructions import Instruction, Notice, Subject
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.group import membership_if_readable, node_times
from scheduler.kube.objects import Node, Pod
from scheduler.kube.workload_objects import POD_GROUP_PATHS, Job
from scheduler.pending.event_hints import of_assigned_pod, of_departure, of_node
from scheduler.pending.part import Part, PodChange
from scheduler.state.binding_cycle import BindingCycle
from scheduler.state.shared_state import SharedState

# Number of uids compared before other work gets its turn: less than a millisecond.
_PORTION = 2048


class UnreadableObjects:
    """Which objects are ignored, and why, by kind, namespace and name: reported once, not at each of their events."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[type[Any], str, str], str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def note(self, kind: type[Any], identity: Identity, notice: Notice) -> list[Instruction]:
        """Return the notice unless its reason is already reported."""
        key, reason = (kind, identity.namespace, identity.name), notice.fields["reason"]
        previous, self._reasons[key] = self._reasons.get(key), reason
        return [] if previous == reason else [notice]

    def drop(self, kind: type[Any], identity: Identity) -> None:
        if self._reasons:
            self._reasons.pop((kind, identity.namespace, identity.name), None)

    def keep(self, kind: type[Any], identities: Iterable[Identity]) -> None:
        if any(key[0] is kind for key in self._reasons):
            keys = {(kind, identity.namespace, identity.name) for identity in identities}
            self._reasons = {key: why for key, why in self._reasons.items() if key[0] is not kind or key in keys}


@dataclass(slots=True)
class EventHandlers:
    """Applies events. Pods are identified by uid: a name may be used again, a uid never is."""

    state: SharedState
    binding_cycle: BindingCycle
    parts: Sequence[Part]
    unreadable_objects: UnreadableObjects = field(default_factory=UnreadableObjects)

    def nodes(self, event: Change[Node], now: float) -> list[Instruction]:
        match event:
            case Changed(identity, node):
                return self._put_node(node, identity, now)
            case Unreadable(identity, reason):
                return self._ignore_node(identity, reason, now)
            case Removed(identity):
                self.unreadable_objects.drop(Node, identity)
                self._remove_node(identity.name, now)
                return []

    def pods(self, event: Change[Pod], now: float) -> list[Instruction]:
        identity = event.identity
        if isinstance(event, Changed) and identity.uid:
            self.unreadable_objects.drop(Pod, identity)
            return self._put_pod(event.item, now)
        if isinstance(event, Removed):
            self.unreadable_objects.drop(Pod, identity)
            self._leave(identity.uid, now)
            return []
        reason = event.why if isinstance(event, Unreadable) else "metadata.uid is missing"
        return self._ignore_pod(identity, reason, now)

    def handle(self, kind: type[Any], event: Event[Any], now: float) -> list[Instruction]:
        if isinstance(event, Synced):
            for _ in self.handle_list(kind, event.identities, now):
                pass
            return [instruction for entry in event.entries for instruction in self.handle(kind, entry, now)]
        if kind is Node:
            return self.nodes(event, now)
        if kind is Pod:
            return self.pods(event, now)
        if kind in volume_cache.PATHS:
            self.state.volume_waits.take(kind, event, now)
            return self._note_readability(kind, event, "storage")
        if kind in POD_GROUP_PATHS:
            self.state.pending_groups.take_pod_group(kind, event, now)
        elif kind is Job:
            self.state.pending_groups.take_job(event, now)
        else:
            cluster_event, fault = self.state.cluster_objects.take(kind, event)
            self.state.queue.move_on_event(cluster_event, now)
            return self._note_readability(kind, event, "cluster_objects", fault)
        return []

    def has(self, kind: type[Any], identity: Identity) -> bool:
        """Return whether an object is present in exactly this version; only for bound pods, which are many."""
        assigned_pod = self.state.cache.assigned(identity.uid) if kind is Pod else None
        version = assigned_pod.version if assigned_pod is not None else ""
        return version != "" and version == identity.resource_version

    def handle_list(self, kind: type[Any], identities: Sequence[Identity], now: float) -> Iterator[None]:
        """Apply a list of all objects of this kind, step by step as the iterator advances."""
        if kind is Node:
            for name in sorted(self.state.cache.node_names() - {identity.name for identity in identities}):
                self._remove_node(name, now)
        elif kind is Pod:
            ended_uids = [uid for members in self.state.group_cache for uid in members.of("succeeded", "failed")]
            uids = [*self.state.pending_pods.uids(), *self.state.cache.uids(), *ended_uids]
            for uid in absent_uids(uids, [identity.uid for identity in identities]):
                if uid is not None:
                    self._leave(uid, now)
                yield
        elif kind in volume_cache.PATHS:
            self.state.volume_waits.keep(kind, identities, now)
        elif kind is Job or kind in POD_GROUP_PATHS:
            groups = self.state.group_cache
            absentees = groups.absent_jobs(identities) if kind is Job else groups.pod_groups.absent(kind, identities)
            for identity in absentees:
                self.handle(kind, Removed(identity), now)
        else:
            self.state.queue.move_on_event(self.state.cluster_objects.keep(kind, identities), now)
        self.unreadable_objects.keep(kind, identities)

    def _note_readability(
        self, kind: type[Any], event: Change[Any], subject: Subject, fault: str = ""
    ) -> list[Instruction]:
        """Report an object that is ignored; ``fault`` is what is wrong with one that was decoded."""
        reason = event.why if isinstance(event, Unreadable) else fault
        if reason:
            identity = event.identity
            fields = {"object": f"{identity.namespace}/{identity.name}", "kind": kind.__name__, "reason": reason}
            return self.unreadable_objects.note(kind, identity, Notice(subject, "object ignored", fields))
        self.unreadable_objects.drop(kind, event.identity)
        return []

    def _put_node(self, node: Node, identity: Identity, now: float) -> list[Instruction]:
        previous = self.state.cache.node(node.metadata.name)
        try:
            node_info, error = read_node(node, previous, now)
        except ValueError as fault:
            return self._ignore_node(identity, str(fault), now)
        self.unreadable_objects.drop(Node, identity)
        name, instructions = node_info.name, list[Instruction]()
        if node_info != previous:
            self.state.cache.put_node(node_info)
            self.state.queue.move_on_event(of_node(previous, node_info), now)
            for part in self.parts:
                instructions += part.node_changed(previous, node_info, now)
            for constraint, reason in self.state.cache.unit_pools.unreadable(name):
                fields = {"node": name, "constraint": constraint, "reason": reason}
                notice = Notice("constraint", "node ignored: inventory of another kind cannot be read", fields)
                instructions.append(notice)
        if error:
            fields = {"node": name, "reason": error}
            instructions.append(Notice("inventory", "node ignored: inventory cannot be read", fields))
        return instructions

    def _remove_node(self, name: str, now: float) -> None:
        self.state.cache.remove_node(name)
        self.state.queue.move_on_event(ClusterEvent.NODE_REMOVED, now)
        for part in self.parts:
            part.node_removed(name, now)

    def _ignore_node(self, identity: Identity, reason: str, now: float) -> list[Instruction]:
        self._remove_node(identity.name, now)
        notice = Notice("node", "node ignored", {"node": identity.name, "reason": reason})
        return self.unreadable_objects.note(Node, identity, notice)

    def _ignore_pod(self, identity: Identity, reason: str, now: float) -> list[Instruction]:
        """Ignore a pod from now on; keep its claims on its node."""
        if self.binding_cycle.awaits_volumes(identity.uid):
            self.binding_cycle.release(identity.uid, now)
        self.state.pending_pods.delete(identity.uid, now)
        for part in self.parts:
            part.pod_unreadable(identity.uid)
        fields = {"pod": f"{identity.namespace}/{identity.name}", "uid": identity.uid, "reason": reason}
        return self.unreadable_objects.note(Pod, identity, Notice("pod", "pod ignored", fields))

    def _put_pod(self, pod: Pod, now: float) -> list[Instruction]:
        uid = pod.metadata.uid
        for part in self.parts:
            part.pod_updated(pod, now)
        if pod.is_over:
            self._leave_node(uid, now)
            self._note_state(pod, "succeeded" if pod.status.phase == "Succeeded" else "failed", now)
            return []
        if pod.spec.node_name:
            is_latecomer = self.state.cache.assigned(uid) is not None and self.state.group_cache.of(uid) is None
            instructions = self._put_assigned_pod(pod, now)
            member_state: MemberState = "placed" if pod.metadata.deletion_timestamp is None else "leaving"
            self._note_state(pod, member_state, now, is_latecomer=is_latecomer)
            return instructions
        if self.state.cache.assigned(uid) is not None:
            if self.binding_cycle.awaits_volumes(uid) and pod.metadata.deletion_timestamp is not None:
                self._leave(uid, now)
            elif self.binding_cycle.awaits_volumes(uid) and self.state.pending_pods.has_changed(pod):
                # Its decision was based on an earlier request.
                self.binding_cycle.release(uid, now)
                self._put_waiting_pod(pod, now)
                return []
            self.state.pending_pods.renew(pod)
            if pod.metadata.deletion_timestamp is not None:
                # Its Binding is in progress.
                self._note_state(pod, "leaving", now)
            return []
        self._put_waiting_pod(pod, now)
        return []

    def _put_waiting_pod(self, pod: Pod, now: float) -> None:
        """Record a pod without a node; a new or changed request, with its group, is read first."""
        uid, is_going = pod.metadata.uid, pod.metadata.deletion_timestamp is not None
        if pod.spec.scheduler_name != self.state.scheduler_name or is_going:
            self.state.pending_pods.put_off(uid, "foreign", now)
            self._note_state(pod, None if is_going else "foreign", now)
        elif pod.spec.scheduling_gates:
            self.state.pending_pods.put_off(uid, "gated", now)
            self._note_state(pod, "gated", now)
        elif (pending := self.state.pending_pods.put(pod, now)) is not None:
            self.state.pending_groups.take_waiting_pod(pod, pending.pod_info, now)

    def _note_state(self, pod: Pod, state: MemberState | None, now: float, *, is_latecomer: bool = False) -> None:
        """Record the state of a pod in its group, if it has one, when it does not wait for this scheduler."""
        membership = membership_if_readable(pod)
        if membership is None or state is None:
            self.state.pending_groups.drop(pod.metadata.uid, now)
            return
        is_foreign = pod.spec.scheduler_name != self.state.scheduler_name
        member = Member(state, node_times(pod), is_latecomer=is_latecomer or is_foreign)
        self.state.pending_groups.put(pod.metadata.uid, membership, member, now)

    def _put_assigned_pod(self, pod: Pod, now: float) -> list[Instruction]:
        uid = pod.metadata.uid
        self.binding_cycle.drop(uid)
        self.state.reservations.delete(uid, now)
        self.state.pending_pods.delete(uid, now)
        previous = self.state.cache.assigned(uid)
        assigned_pod, faults = read_assigned_pod(pod, previous, self.state.cache.nodes.published_names)
        notices: list[Instruction] = [Notice(fault.part, fault.event, fault.fields) for fault in faults]
        if event := of_assigned_pod(previous, assigned_pod, self.state.cache.put(assigned_pod, now)):
            self.state.queue.move_on_event(event, now)
        change = PodChange(pod, previous, assigned_pod)
        for part in self.parts:
            notices += part.pod_assigned(change, now)
        return notices

    def _leave(self, uid: str, now: float) -> None:
        self._leave_node(uid, now)
        self.state.pending_groups.drop(uid, now)

    def _leave_node(self, uid: str, now: float) -> None:
        """Drop a pod, but keep its state in its group."""
        self.binding_cycle.drop(uid)
        self.state.pending_pods.delete(uid, now)
        assigned_pod = self.state.cache.remove(uid, now)
        if assigned_pod is not None:
            self.state.queue.move_on_event(of_departure(assigned_pod), now)
        for part in self.parts:
            part.pod_deleted(uid, assigned_pod, now)


def absent_uids(uids: Sequence[str], present_uids: Sequence[str]) -> Iterator[str | None]:
    """Yield the absent uids in order, and None from time to time, when other work may run: they may be 100,000."""
    present, absent = set[str](), list[str]()
    for start in range(0, len(present_uids), _PORTION):
        present.update(present_uids[start : start + _PORTION])
        yield None
    for start in range(0, len(uids), _PORTION):
        absent += [uid for uid in uids[start : start + _PORTION] if uid not in present]
        yield None
    yield from sorted(absent)
