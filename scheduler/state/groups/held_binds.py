"""From a decision about a group to its Binds: all of them once every volume is bound, or none. Pure.

If a member is deleted meanwhile, it leaves its batch. The batch is then checked again: it may be ready now, or have too
few members.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.cache.groups.group_sources import Group
from scheduler.cycle.decisions import Bind, validate_annotations
from scheduler.cycle.instructions import Instruction, PreBind
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.outcomes import Refused
from scheduler.state.shared_state import SharedState


@dataclass(slots=True)
class Batch:
    """The held Binds of one group by uid; ``min`` is how many members must be placed for any of them to be written."""

    key: GroupKey
    min: int = 0
    binds: dict[str, Bind] = field(default_factory=dict)
    has_changed: bool = False


@dataclass(slots=True)
class HeldBinds:
    """The batches by group; they are few."""

    state: SharedState
    _batches: dict[GroupKey, Batch] = field(default_factory=dict)

    def __contains__(self, uid: str) -> bool:
        return self.batch_of(uid) is not None

    def begin(self, group: Group, binds: tuple[Bind, ...], now: float) -> Iterator[Instruction]:
        """Yield the Binds of a decision, or hold them and yield the writes for the volumes.

        While Binds of the group are held, those of later members are not written before them.
        """
        binds_with_plan = [bind for bind in binds if bind.plan is not None]
        if not binds_with_plan and group.key not in self._batches:
            yield from binds
            return
        batch = self._batches.setdefault(group.key, Batch(group.key))
        batch.min = max(batch.min, group.min)
        batch.binds |= {bind.pod_info.uid: bind for bind in binds}
        for bind in binds_with_plan:
            assert bind.plan is not None, "those without a plan are left out"
            self.state.volume_waits.add(bind, now)
            yield PreBind(bind, bind.plan)

    def batch_of(self, uid: str) -> Batch | None:
        return next((batch for batch in self._batches.values() if uid in batch.binds), None)

    def drop(self, uid: str) -> None:
        """Record that a pod was deleted, or left its group."""
        if (batch := self.batch_of(uid)) is not None:
            batch.has_changed = True
            del batch.binds[uid]
            if not batch.binds:
                del self._batches[batch.key]

    def changed(self) -> list[Batch]:
        """Return the batches that have changed since `take`."""
        return [batch for batch in self._batches.values() if batch.has_changed]

    def take(self, batch: Batch) -> Sequence[Bind] | Refused:
        """Return the Binds of a batch whose volumes are all bound, none while it waits, or why it must be released."""
        batch.has_changed = False
        members = self.state.pending_groups.members(batch.key)
        if members.shortage(members.owners(batch.binds), batch.min):
            return Refused("too few of its members are left")
        if any(uid in self.state.volume_waits for uid in batch.binds):
            return ()
        # Minutes may have passed since the nodes were chosen, and the annotations were checked against the pod's own.
        for uid, bind in batch.binds.items():
            if self.state.cache.node(bind.assigned.node) is None:
                return Refused(f"{bind.pod_info.pod.key}: node {bind.assigned.node!r} was deleted meanwhile")
            if reason := validate_annotations(self.state.pending_pods[uid].pod.annotations, bind.annotations):
                return Refused(f"{bind.pod_info.pod.key}: {reason}")
        del self._batches[batch.key]
        return list(batch.binds.values())

    def release(self, batch: Batch, now: float) -> list[str]:
        """Remove all members of a batch from their nodes, so that the group can be scheduled again; return their
        uids.
        """
        del self._batches[batch.key]
        uids = list(batch.binds)
        for uid in uids:
            self.state.volume_waits.drop(uid)
        self.state.pending_pods.forget_all_assumed(uids, now)
        self.state.pending_pods.give_up_volumes(now)
        self.state.pending_groups.back_off(uids[0], now)
        return uids
