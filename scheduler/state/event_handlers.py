"""What the watches tell, taken into the state: nodes, pods, and all around them. Pure: time is an argument.

Whatever cannot be read leaves that object out, once said with the reason. What an event can help wakes the pods that
wait for it, and nobody else.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from mooring.kube.events import Change, Changed, Event, Identity, Removed, Synced, Unreadable
from scheduler.cache.assigned_pod import read_seat
from scheduler.cache.cache import Cluster
from scheduler.cache.node_info import NodeFacts, read_node
from scheduler.cache.volumes import volume_cache as catalogue
from scheduler.cycle.instructions import Blame, Instruction, Notice
from scheduler.extender.bound_without_vfs import Stranded
from scheduler.kube.objects import Node, Pod
from scheduler.pending.event_hints import of_leaving, of_node, of_seat
from scheduler.pending.pending_pods import Roster
from scheduler.queue import Happening, Queue
from scheduler.state.cluster_objects import Surrounding, Surroundings
from scheduler.state.relist_diff import missing
from scheduler.state.unreadable_objects import LeftOut
from scheduler.state.vf_disputes import Trust


class Intake:
    """Pods are known by uid: a name may be used again, a uid never is."""

    def __init__(
        self,
        scheduler_name: str,
        cluster: Cluster,
        queue: Queue,
        roster: Roster,
        trust: Trust,
        surroundings: Surroundings,
        stranded: Stranded,
    ) -> None:
        self._scheduler_name = scheduler_name
        self._cluster = cluster
        self._queue = queue
        self._roster = roster
        self._trust = trust
        self._surroundings = surroundings
        self._stranded = stranded
        self.left_out = LeftOut()

    def nodes(self, event: Change[Node], now: float) -> list[Instruction]:
        match event:
            case Changed(identity, node):
                return self._node(node, identity, now)
            case Unreadable(identity, why):
                return self._leave_out_node(identity, why, now)
            case Removed(identity):
                self.left_out.drop(Node, identity)
                self._remove_node(identity.name, now)
                return []

    def pods(self, event: Change[Pod], now: float) -> list[Instruction]:
        match event:
            case Changed(identity, pod) if identity.uid:
                self.left_out.drop(Pod, identity)
                return self._pod(pod, now)
            case Changed(identity):
                return self._leave_out_pod(identity, "metadata.uid is missing", now)
            case Unreadable(identity, why):
                return self._leave_out_pod(identity, why, now)
            case Removed(identity):
                self.left_out.drop(Pod, identity)
                self._leave(identity.uid, now)
                return []

    def see(self, kind: type[Any], event: Event[Any], now: float) -> list[Instruction]:
        """Take what a watch tells of any kind of object."""
        if isinstance(event, Synced):
            for _ in self.keeping(kind, event.there, now):
                pass
            return [one for entry in event.entries for one in self.see(kind, entry, now)]
        if kind is Node:
            return self.nodes(event, now)
        if kind is Pod:
            return self.pods(event, now)
        return self.stored(kind, event, now) if kind in catalogue.PATHS else self.around(kind, event, now)

    def has(self, kind: type[Any], identity: Identity) -> bool:
        """Say whether an object is known in just this version; only of bound pods, which are many."""
        seat = self._cluster.seat(identity.uid) if kind is Pod else None
        return seat is not None and seat.version != "" and seat.version == identity.resource_version

    def keeping(self, kind: type[Any], there: Sequence[Identity], now: float) -> Iterator[None]:
        """Take it that there are no objects of this kind but these, little by little, at each step of the iterator."""
        if kind is Node:
            for name in sorted(self._cluster.node_names() - {identity.name for identity in there}):
                self._remove_node(name, now)
        elif kind is Pod:
            known = [*self._roster.uids(), *self._cluster.uids()]
            for uid in missing(known, [identity.uid for identity in there]):
                if uid is not None:
                    self._leave(uid, now)
                yield
        elif kind in catalogue.PATHS:
            self._roster.storage.keep(kind, there, now)
        else:
            self._queue.wake(self._surroundings.keep(kind, there), now)
        self.left_out.keep(kind, there)

    def stored(self, kind: type[catalogue.Stored], event: Change[catalogue.Stored], now: float) -> list[Instruction]:
        """Take what a watch tells of volumes, claims, storage classes and what nodes can attach."""
        return self._leave_out_others(kind, event, "storage", self._roster.storage.take(kind, event, now))

    def around(self, kind: type[Surrounding], event: Change[Surrounding], now: float) -> list[Instruction]:
        """Take what a watch tells of namespaces, services and controllers."""
        helps, left_out = self._surroundings.take(kind, event)
        self._queue.wake(helps, now)
        return self._leave_out_others(kind, event, "surroundings", left_out)

    def _leave_out_others(
        self, kind: type[Any], event: Change[Any], blame: Blame, left_out: Sequence[tuple[Identity, str]]
    ) -> list[Instruction]:
        if not left_out:
            self.left_out.drop(kind, event.identity)
        return [one for identity, why in left_out for one in self.left_out.other(kind, identity, blame, why)]

    def _node(self, node: Node, identity: Identity, now: float) -> list[Instruction]:
        known = self._cluster.node(node.metadata.name)
        try:
            facts, error = read_node(node, known, now)
        except ValueError as unreadable:
            return self._leave_out_node(identity, str(unreadable), now)
        self.left_out.drop(Node, identity)
        found: list[Instruction] = []
        if facts != known:
            self._cluster.put_node(facts)
            self._queue.wake(of_node(known, facts), now)
            if known is not None and known.labels != facts.labels:
                self._roster.storage.waiting.touch_node(facts.name)
            found = self._trust.settle(facts.name, now)
            self._trust.judge(facts.name, now)
            found += self._unreadable(facts)
        fields = {"node": facts.name, "reason": error}
        return [*found, Notice("inventory", "node left out: inventory cannot be read", fields)] if error else found

    def _unreadable(self, facts: NodeFacts) -> Iterator[Instruction]:
        """Yield what of a node is left out because its inventory of another kind cannot be used."""
        for kind, why in self._cluster.shelves.unreadable(facts.name):
            about = {"node": facts.name, "constraint": kind, "reason": why}
            yield Notice("constraint", "node left out: inventory of another kind cannot be read", about)

    def _remove_node(self, name: str, now: float) -> None:
        self._cluster.remove_node(name)
        self._trust.node_left(name, now)
        self._roster.storage.waiting.touch_node(name)
        self._queue.wake(Happening.NODE_REMOVED, now)
        self._roster.nominating.close(name, now)

    def _leave_out_node(self, identity: Identity, why: str, now: float) -> list[Instruction]:
        self._remove_node(identity.name, now)
        return self.left_out.node(identity, why)

    def _leave_out_pod(self, identity: Identity, why: str, now: float) -> list[Instruction]:
        """Leave a pod out; what it is known to hold on its node it keeps."""
        if identity.uid in self._roster.storage.waiting:
            self._roster.unseat(identity.uid, now)
        self._roster.forget(identity.uid, now)
        return self.left_out.pod(identity, why)

    def _pod(self, pod: Pod, now: float) -> list[Instruction]:
        uid = pod.metadata.uid
        if pod.is_over:
            self._leave(uid, now)
            return []
        if pod.spec.node_name:
            return self._seat(pod, now)
        if self._cluster.seat(uid) is not None:
            if pod.metadata.deletion_timestamp is not None and uid in self._roster.storage.waiting:
                self._leave(uid, now)
            self._roster.renew(pod)
            return []
        ours = pod.spec.scheduler_name == self._scheduler_name and pod.metadata.deletion_timestamp is None
        if ours and not pod.spec.scheduling_gates:
            self._roster.offer(pod, now)
        elif ours:
            self._roster.gate(uid, now)
        else:
            self._roster.leave_to_others(uid, now)
        return []

    def _seat(self, pod: Pod, now: float) -> list[Instruction]:
        uid = pod.metadata.uid
        self._roster.forget(uid, now)
        known = self._cluster.seat(uid)
        if known is not None and known.version and known.version == pod.metadata.resource_version:
            # Listed again as it was.
            return []
        seat, faults = read_seat(pod, known)
        notices: list[Instruction] = [Notice(one.part, one.event, one.fields) for one in faults]
        if news := of_seat(known, seat, self._cluster.put(seat, now)):
            self._queue.wake(news, now)
        self._trust.see(pod, seat, now)
        if seat.assignment is not None and (known is None or known.assignment != seat.assignment):
            notices += self._trust.settle(seat.node, now)
        return [*notices, *self._stranded.see(pod)]

    def _leave(self, uid: str, now: float) -> None:
        self._roster.forget(uid, now)
        self._trust.drop(uid)
        self._stranded.drop(uid)
        seat = self._cluster.remove(uid, now)
        if seat is not None:
            self._queue.wake(of_leaving(seat), now)
            self._trust.pod_left(seat, now)
