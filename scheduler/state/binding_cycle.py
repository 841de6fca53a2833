"""The binding cycle: from a decision to its Bindings, and the results of all writes about pods. Pure.

A batch is the Binds of a pod, or of decisions about a group, that wait for volumes: all of them are written once every
volume is bound, or none. It is checked again when a volume is bound or a member leaves: it may be ready then, or have
too few members.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.decisions import Bind, validate_annotations
from scheduler.cycle.instructions import Evict, Instruction, Notice, Order, PreBind, PreBindResult, Report, Result
from scheduler.cycle.reserved_room import Owner
from scheduler.kube.cluster_event import NO_EVENT
from scheduler.kube.group import Group, GroupKey
from scheduler.kube.outcomes import Outcome, Refused
from scheduler.pending.part import Part
from scheduler.state.shared_state import SharedState

# The results of a Binding after which a pod is tried again, with the message for it.
_FAILURES: Mapping[str, str] = {
    "changed": "",
    "denied": "binding denied",
    "forbidden": "binding forbidden",
    "refused": "the API server rejected the binding",
}


@dataclass(slots=True)
class _Batch:
    """Binds by uid; ``min_members`` of the owner, a group, must be placed for any of them to be written."""

    owner: Owner
    min_members: int = 0
    binds: dict[str, Bind] = field(default_factory=dict)


@dataclass(slots=True)
class BindingCycle(Part):
    """The batches by owner: a pod's uid, or a group."""

    state: SharedState
    _batches: dict[Owner, _Batch] = field(default_factory=dict)
    _owners: dict[str, Owner] = field(default_factory=dict)
    # The batches to check.
    _changes: dict[Owner, None] = field(default_factory=dict)

    def awaits_volumes(self, uid: str) -> bool:
        """Return whether a pod is assumed and its Bind waits for volumes."""
        return uid in self._owners

    def await_volumes(self, binds: Sequence[Bind], now: float, group: Group | None = None) -> Iterator[Instruction]:
        """Yield the Binds of a decision about a pod or a group; of those with volumes, first the writes for these.

        While Binds of a group wait, those of later members are not written before them.
        """
        owner = group.key if group is not None else binds[0].pod_info.uid
        if all(bind.plan is None for bind in binds) and owner not in self._batches:
            yield from binds
            return
        batch = self._batches.setdefault(owner, _Batch(owner))
        batch.min_members = max(batch.min_members, group.min if group is not None else 0)
        for bind in binds:
            uid = bind.pod_info.uid
            batch.binds[uid], self._owners[uid] = bind, owner
            if bind.plan is not None:
                self.state.volume_waits.add(bind, now)
                yield PreBind(bind, bind.plan)

    def drop(self, uid: str) -> None:
        """Record that a pod was deleted, bound, or left its group."""
        owner = self._owners.pop(uid, None)
        if owner is not None:
            self._changes[owner] = None
            del self._batches[owner].binds[uid]
            if not self._batches[owner].binds:
                self._end(self._batches[owner])

    def release(self, uid: str, now: float) -> None:
        """Release everything that is assumed for a pod whose Bind waits."""
        self.drop(uid)
        self._forget([uid], now)

    def _forget(self, uids: Sequence[str], now: float) -> None:
        for uid in uids:
            self.state.volume_waits.drop(uid)
        self.state.pending_pods.release(uids, now)
        self.state.volume_waits.give_up(now)

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        if previous is not None and previous.labels != node.labels:
            self.state.volume_waits.touch_node(node.name)
        return ()

    def node_removed(self, name: str, now: float) -> None:
        self.state.volume_waits.touch_node(name)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if isinstance(order, PreBind) and isinstance(result, PreBindResult):
            waits = self.state.volume_waits
            if result.fault:
                return self._settle(order.decision, result.fault, now) if waits.fail_write(order.decision) else ()
            waits.finish_write(order.decision, result.versions)
        if isinstance(order, Bind) and isinstance(result, Outcome):
            return self._finish_bind(order, result, now)
        if isinstance(order, Evict) and result == "evicted":
            return [Report(order.pod, order.cause, f"evicted: {order.reason}")]
        return ()

    def tick(self, now: float) -> Iterator[Instruction]:
        """Yield the Binds of batches whose volumes are all bound, and release those whose volumes never will be."""
        for bind, fault in self.state.volume_waits.outcomes(now):
            yield from self._settle(bind, fault, now)
        while self._changes:
            owner = next(iter(self._changes))
            del self._changes[owner]
            batch = self._batches[owner]
            binds = self._ready_binds(batch)
            yield from self._release(batch, binds.reason, now) if isinstance(binds, Refused) else binds

    def next_due(self) -> float | None:
        return 0.0 if self._changes else self.state.volume_waits.next_due()

    def check(self) -> None:
        self.state.volume_waits.check(self.state.pending_pods.pending.keys())
        uids = {uid: batch.owner for batch in self._batches.values() for uid in batch.binds}
        assert self._owners == uids, "the batches differ from their owners"

    def _settle(self, bind: Bind, fault: str, now: float) -> Iterable[Instruction]:
        owner = self._owners[bind.pod_info.uid]
        if fault:
            reason = f"binding volumes of {bind.pod_info.pod.key}: {fault}" if isinstance(owner, GroupKey) else fault
            return self._release(self._batches[owner], reason, now)
        self._changes[owner] = None
        return ()

    def _ready_binds(self, batch: _Batch) -> Sequence[Bind] | Refused:
        """Return the Binds of a batch whose volumes are all bound, none while it waits, or why it must be released."""
        is_group = isinstance(batch.owner, GroupKey)
        if isinstance(batch.owner, GroupKey):
            members = self.state.pending_groups.members(batch.owner)
            if members.shortage(members.owners(batch.binds), batch.min_members):
                return Refused("too few of its members are left")
        if any(uid in self.state.volume_waits for uid in batch.binds):
            return ()
        # Minutes may have passed since the nodes were chosen, and the annotations were checked against the pod's own.
        for uid, bind in batch.binds.items():
            name = f"{bind.pod_info.pod.key}: " if is_group else ""
            if self.state.cache.node(bind.assigned.node) is None:
                return Refused(f"{name}node {bind.assigned.node!r} was deleted meanwhile")
            if reason := validate_annotations(self.state.pending_pods[uid].pod.annotations, bind.annotations):
                return Refused(f"{name}{reason}")
        self._end(batch)
        return list(batch.binds.values())

    def _release(self, batch: _Batch, reason: str, now: float) -> list[Instruction]:
        self._end(batch)
        state, uids = self.state, list(batch.binds)
        self._forget(uids, now)
        if isinstance(batch.owner, GroupKey):
            state.pending_groups.back_off(uids[0], now)
            members = state.group_cache.get(batch.owner)
            title = members.title if members is not None else batch.owner.name
            state.group_reports.put(batch.owner, uids, f"group {title}: {reason}", now)
            return []
        state.queue.retry(batch.owner)
        pending = state.pending_pods[batch.owner]
        return state.pending_pods.report_unschedulable(pending, "Unschedulable", f"binding volumes: {reason}")

    def _end(self, batch: _Batch) -> None:
        del self._batches[batch.owner]
        self._changes.pop(batch.owner, None)
        for uid in batch.binds:
            del self._owners[uid]

    def _finish_bind(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        """Process a definite result: the pod is bound, or waits again, or the watch will show its state."""
        state, pod_info = self.state, decision.pod_info
        if outcome.kind != "bound":
            state.pending_pods.release([pod_info.uid], now)
            return self._handle_failure(pod_info.uid, outcome, now)
        state.cache.finish_binding(pod_info.uid)
        state.pending_groups.end_backoff(pod_info.uid)
        state.pending_pods.delete(pod_info.uid, now)
        node, key = decision.assigned.node, pod_info.pod.key
        reports: list[Instruction] = [
            Report(pod_info.pod, "Scheduled", f"Successfully assigned {key} to {node}", decision.why)
        ]
        if state.cache.node(node) is None:
            # The API server allows a Binding to a deleted node. The garbage collector removes such pods.
            fields = {"node": node, "pod": key, "uid": pod_info.uid}
            reports.append(Notice("node", "pod bound to a node that was deleted meanwhile", fields))
        return reports

    def _handle_failure(self, uid: str, outcome: Outcome, now: float) -> list[Instruction]:
        state, pending = self.state, self.state.pending_pods.get(uid)
        if pending is None:
            return []
        message = _FAILURES.get(outcome.kind)
        if message is None or pending.pod.metadata.deletion_timestamp is not None:
            # Bound, gated, deleting, gone: the watch shows the next state, as a change of this pod or its end.
            state.pending_pods.delete(uid, now)
            return []
        if state.group_cache.of(uid) is not None:
            # It has no entry in the queue: its group has.
            state.pending_groups.back_off(uid, now)
        elif outcome.kind == "refused":
            state.queue.add_unschedulable(uid, NO_EVENT)
        else:
            state.queue.retry(uid)
        if not message:
            return []
        return state.pending_pods.report_unschedulable(pending, "Unschedulable", f"{message}: {outcome.reason}")
