"""From a decision about a group to its Binds: all of them once every volume is bound, or none. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scheduler.cache.groups.sources import Group
from scheduler.cycle.decisions import Bind, validate_annotations
from scheduler.cycle.instructions import Instruction, PreBind
from scheduler.kube.refused import Refused
from scheduler.pending.groups.held_binds import Batch
from scheduler.state.shared_state import SharedState


@dataclass(slots=True)
class GroupPreBinding:
    """Holds the Binds of a decision while volumes of its members are bound."""

    state: SharedState

    def begin(self, group: Group, binds: tuple[Bind, ...], now: float) -> Iterator[Instruction]:
        """Yield the Binds, or hold them and yield the writes for the volumes."""
        binds_with_plan = [bind for bind in binds if bind.plan is not None]
        if not binds_with_plan and not self.state.held_binds.has_group(group.key):
            yield from binds
            return
        self.state.held_binds.add(group.key, group.min, binds)
        for bind in binds_with_plan:
            assert bind.plan is not None, "those without a plan are left out"
            self.state.volume_waits.add(bind, now)
            yield PreBind(bind, bind.plan)

    def take_binds(self, batch: Batch) -> Sequence[Bind] | Refused:
        """Return the Binds of a batch whose volumes are all bound, none while it waits, or why it must be released."""
        members = self.state.pending_groups.members(batch.key)
        if members.count_missing(members.owners(batch.binds), batch.min):
            return Refused("too few of its members are left")
        if batch.awaited:
            return ()
        # Minutes may have passed since the nodes were chosen, and the annotations were checked against the pod's own.
        for uid, bind in batch.binds.items():
            if self.state.cache.node(bind.assigned.node) is None:
                return Refused(f"{bind.pod_info.pod.key}: node {bind.assigned.node!r} was deleted meanwhile")
            if reason := validate_annotations(self.state.pending_pods[uid].pod.annotations, bind.annotations):
                return Refused(f"{bind.pod_info.pod.key}: {reason}")
        self.state.held_binds.end(batch)
        return list(batch.binds.values())

    def release(self, batch: Batch, now: float) -> list[str]:
        """Remove all members of a batch from their nodes, so that the group can be scheduled again; return
        their uids.
        """
        self.state.held_binds.end(batch)
        uids = list(batch.binds)
        for uid in uids:
            self.state.volume_waits.drop(uid)
        self.state.pending_pods.forget_all_assumed(uids, now)
        self.state.pending_pods.give_up_volumes(now)
        for uid in uids[:1]:
            self.state.pending_groups.back_off(uid, now)
        return uids
