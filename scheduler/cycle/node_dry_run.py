"""One node for one pod, as it would be with other pods on it: taken off, put on, judged, and put back in the end.

What `signature_scores` asks of many rows at once is asked here of one node again and again while its pods change, so
that it is kept as plain numbers. Rules about the whole cluster are asked again only if one of them looks at a pod that
was moved.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np

from mooring.assignment import Assignment
from mooring.inventory import Pf
from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.node_columns import PODS, Rows
from scheduler.cycle.sums import AmountSums, Need, VfSums
from scheduler.kube.affinity import AffinityInfo
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import OUT_OF_BUDGET, Chosen, demands_on, pick_vfs, place_on
from scheduler.placement.joint import section
from scheduler.placement.place import PfCapacity, VfDemand
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.plugins import constraints
from scheduler.plugins.interface import Texts
from scheduler.plugins.node_ports import REASONS as PORTS_TAKEN
from scheduler.plugins.node_ports import clash
from scheduler.plugins.node_resources_fit import counts_on

# Why rules about other pods, and about volumes, refuse some of these rows, by row.
Judge = Callable[[Rows], Mapping[int, Texts]]


class PreFilterExtensions(Protocol):
    """What one rule looks at on the node."""

    def shift(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        """Put pods on (1) or take them off (-1)."""

    def refusal(self) -> Texts:
        """Return the reasons against the node as it is now; none if the rule lets it pass."""


class DryRuns:
    """The dry runs of one pod, and what they have in common."""

    def __init__(
        self, pod_info: PodInfo, cache: Cache, judge: Judge, *, is_wide: bool, only_gives: bool = False
    ) -> None:
        """Take what asks rules about the whole cluster; ``is_wide`` if any of them has a say about the pod now.

        With ``only_gives`` just what Mooring itself gives is judged: VFs, and units of other kinds.
        """
        self.pod_info = pod_info
        self.cache = cache
        self.judge = judge
        self.is_wide = is_wide
        self.only_gives = only_gives
        wanted = sorted(pod_info.resources.items())
        self._needs = [Need(cache.nodes.line(name), name, amount) for name, amount in wanted if amount > 0]
        self._objections: Mapping[int, Texts] | None = None
        self._watched: dict[AffinityInfo, bool] = {}
        self._demands: dict[int, tuple[VfDemand, ...] | str] = {}

    def objections(self, row: int) -> Texts:
        """Return what rules about the whole cluster have against a row as everybody sits now."""
        if self._objections is None:
            self._objections = self.judge(self.cache.nodes.all_rows())
        return self._objections.get(row, ())

    def demands_on(self, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...] | str:
        """Return which of these PFs may give each interface; why not, if none may give one of them."""
        # Nodes of one model share their PFs, which stay as long as the dry runs do.
        found = self._demands.get(id(pfs))
        if found is None:
            request = self.pod_info.request
            found = self._demands[id(pfs)] = demands_on(request, pfs) if request is not None else ()
        return found

    def is_watched(self, affinity_info: AffinityInfo) -> bool:
        """Return whether any cluster-wide filter counts assigned pods of this kind; valid once each has run."""
        found = self._watched.get(affinity_info)
        if found is None:
            found = self._watched[affinity_info] = not self.cache.pod_counts.is_passed_over(affinity_info)
        return found

    def amounts(self, row: int) -> AmountSums:
        nodes = self.cache.nodes
        return AmountSums(self._needs, nodes.row_view(row).left, nodes.published[row])

    def large_enough(self, rows: Rows) -> Rows:
        """Return the rows that could take the pod if nobody else were there."""
        nodes = self.cache.nodes
        every = np.arange(nodes.size)
        view = nodes.view(every)
        enough = view.allocatable[PODS] > 0
        for line, name, amount in self._needs:
            lacks = view.allocatable[line] < amount
            if lacks.any():
                enough &= ~(lacks & view.judged(nodes.published, partial(counts_on, name)).astype(bool))
        if self.pod_info.interfaces:
            enough &= view.judged(nodes.offers, self._could_give).astype(bool)
        fit: Rows = rows[enough[rows]]
        return fit

    def _could_give(self, offer: tuple[str, tuple[Pf, ...]]) -> bool:
        """Return whether the interfaces would fit on these PFs if all their VFs were free."""
        _, pfs = offer
        request, demands = self.pod_info.request, self.demands_on(pfs)
        if request is None or isinstance(demands, str):
            return False
        capacities = tuple(PfCapacity(len(pf.vfs), pf.offer_mbps) for pf in pfs)
        found = place_on(demands, capacities, request.pfs)
        return not isinstance(found, str) or found == OUT_OF_BUDGET

    @contextmanager
    def on(self, row: int, nominated: Iterable[AssignedPod] = (), *, by_sums: bool = False) -> Iterator["NodeDryRun"]:
        """Try a node on which these pods are nominated; when it ends, all is as before.

        With ``by_sums`` what VFs are left is only counted where that is enough: the dry run has no
        `NodeDryRun.assigned` to tell.
        """
        dry_run = NodeDryRun(self, row, tuple(nominated), by_sums=by_sums)
        try:
            yield dry_run
        finally:
            dry_run.restore()


class NodeDryRun:
    """One node; pods that are nominated there count beside those that sit there."""

    def __init__(
        self, dry_runs: DryRuns, row: int, nominated: tuple[AssignedPod, ...], *, by_sums: bool = False
    ) -> None:
        self._dry_runs = dry_runs
        self._row = row
        self._nominated = nominated
        # Who was moved how often, where that shows outside.
        self._moved: dict[str, tuple[AssignedPod, int]] = {}
        self._given = _given(dry_runs, row)
        self._sums: VfSums | None = None
        if by_sums and not nominated and not dry_runs.pod_info.wishes and self._given is not None:
            self._sums = self._given.sums()
        self._amounts = None if dry_runs.only_gives else dry_runs.amounts(row)
        self._aspects = list(self._judging())
        self._shifts = [aspect.shift for aspect in self._aspects]
        self._shows = any(isinstance(aspect, _Vfs | _Wide) for aspect in self._aspects)
        self._is_plain = self._aspects == [self._amounts]
        self.put_on(*nominated)

    def _judging(self) -> Iterator[PreFilterExtensions]:
        dry_runs, row = self._dry_runs, self._row
        if self._amounts is not None:
            yield self._amounts
            if dry_runs.pod_info.ports:
                yield _Ports(dry_runs, row)
        if self._sums is not None:
            yield self._sums
        elif self._given is not None:
            yield self._given
        # Nobody who goes makes such a rule speak of the pod, but a nominated one may keep it away.
        keeps_away = any(
            assigned.affinity_info is not None and assigned.affinity_info.repelled for assigned in self._nominated
        )
        if not dry_runs.only_gives and (dry_runs.is_wide or keeps_away):
            yield _Wide(dry_runs, row)

    def take_off(self, *assigned_pods: AssignedPod) -> None:
        self._move(assigned_pods, -1)

    def put_on(self, *assigned_pods: AssignedPod) -> None:
        self._move(assigned_pods, 1)

    def admits(self, assigned_pods: Sequence[AssignedPod]) -> bool:
        """Put pods back if the dry run's pod, which fits now, fits beside them too; return whether they are back."""
        if self._amounts is not None and not self._amounts.leave_room_for(assigned_pods):
            return False
        self.put_on(*assigned_pods)
        if self._is_plain or not self.refusal():
            return True
        self.take_off(*assigned_pods)
        return False

    def refusal(self) -> Texts:
        """Return why the pod may not be here now; none if it may.

        Where it looks for others it must find them among those that sit here: who is nominated may never come.
        """
        found = self._refusal()
        if found or not self._nominated or not self._dry_runs.pod_info.affinity_info.attracted:
            return found
        self.take_off(*self._nominated)
        found = self._refusal()
        self.put_on(*self._nominated)
        return found

    def assigned(self) -> AssignedPod:
        """Return what the pod would be here, with the VFs and other units that it would get if there are enough."""
        node = self._dry_runs.cache.nodes.names[self._row]
        return assigned_pod_for(
            self._dry_runs.pod_info, node, self._given.assignment() if self._given is not None else None
        )

    def restore(self) -> None:
        for assigned, net in list(self._moved.values()):
            if net:
                self._move((assigned,), -net)
        if self._given is not None:
            self._given.show()

    def _move(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        if self._shows:
            for assigned in assigned_pods:
                self._moved[assigned.uid] = (
                    assigned,
                    self._moved.get(assigned.uid, (assigned, 0))[1] + sign,
                )
        for shift in self._shifts:
            shift(assigned_pods, sign)

    def _refusal(self) -> Texts:
        for aspect in self._aspects:
            if found := aspect.refusal():
                return found
        return ()


def assigned_pod_for(pod_info: PodInfo, node: str, assignment: Assignment | None = None) -> AssignedPod:
    """Return what a pod that waits would be on a node."""
    return AssignedPod(
        uid=pod_info.uid,
        pod=pod_info.pod.key,
        node=node,
        resources=pod_info.resources,
        scored=pod_info.scored,
        ports=pod_info.ports,
        assignment=assignment,
        assumed=True,
        affinity_info=pod_info.affinity_info,
        volumes=pod_info.volumes,
        priority=pod_info.priority,
    )


class _Ports:
    """NodePorts."""

    def __init__(self, dry_runs: DryRuns, row: int) -> None:
        self._wanted = dry_runs.pod_info.ports
        assigned_pods = dry_runs.cache.assigned_pods_on(dry_runs.cache.nodes.names[row])
        self._taken = {assigned.uid: assigned.ports for assigned in assigned_pods if assigned.ports}

    def shift(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        for assigned in assigned_pods:
            if sign > 0:
                self._taken[assigned.uid] = assigned.ports
            else:
                self._taken.pop(assigned.uid, None)

    def refusal(self) -> Texts:
        taken = (port for ports in self._taken.values() for port in ports)
        return PORTS_TAKEN if any(clash(port, other) for other in taken for port in self._wanted) else ()


def assign(pod_info: PodInfo, cache: Cache, node: str, free_vfs: FreeVfs, chosen: Chosen) -> Assignment:
    """Return the exact VFs and units for a placement."""
    vfs = pick_vfs(pod_info.interfaces, free_vfs, chosen, cache.free_since(node))
    ext = {kind: section(proposal) for kind, proposal in chosen.others}
    return Assignment(uid=pod_info.uid, node=node, vfs=vfs, ext=ext)


def _given(dry_runs: DryRuns, row: int) -> "_Vfs | None":
    if dry_runs.pod_info.wishes:
        return _Kinds(dry_runs, row)
    return _Vfs(dry_runs, row) if dry_runs.pod_info.interfaces else None


class _Vfs:
    """RdmaVfs, exactly: whether the interfaces fit together on the PFs."""

    def __init__(self, dry_runs: DryRuns, row: int) -> None:
        self._dry_runs = dry_runs
        self._node = dry_runs.cache.nodes.names[row]
        self._vf_accounting = dry_runs.cache.vf_accounting(self._node)
        self._demands = dry_runs.demands_on(self._vf_accounting.pfs)

    def shift(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        move = self._vf_accounting.add if sign > 0 else self._vf_accounting.remove
        for assigned in assigned_pods:
            if (claim := assigned.claim) is not None:
                move(claim)

    def refusal(self) -> Texts:
        found = self._place()
        return (found,) if isinstance(found, str) else ()

    def assignment(self) -> Assignment | None:
        """Return the exact VFs that the pod would get; None if it would get none."""
        found = self._place()
        if isinstance(found, str):
            return None
        return assign(self._dry_runs.pod_info, self._dry_runs.cache, self._node, self._vf_accounting.free_vfs, found)

    def show(self) -> None:
        """Let others see what is left now."""

    def sums(self) -> VfSums | None:
        """Return the same as mere sums; None where VFs overlap, so that sums do not tell."""
        request = self._dry_runs.pod_info.request
        if request is None or isinstance(self._demands, str) or not self._vf_accounting.is_plain:
            return None
        return VfSums(self._vf_accounting, self._demands, request.pfs)

    def _place(self) -> Chosen | str:
        request = self._dry_runs.pod_info.request
        if isinstance(self._demands, str) or request is None:
            return str(self._demands)
        return place_on(self._demands, self._vf_accounting.free_vfs.capacities, request.pfs)


class _Kinds(_Vfs):
    """Other kinds of resource, and VFs beside them: what is asked about them looks at the node's row."""

    def __init__(self, dry_runs: DryRuns, row: int) -> None:
        super().__init__(dry_runs, row)
        self._row = row
        self._filter = constraints.pre_filter(dry_runs.pod_info, dry_runs.cache.nodes)
        assigned_pods = dry_runs.cache.assigned_pods_on(self._node)
        self._assignments = {
            assigned.uid: assigned.assignment for assigned in assigned_pods if assigned.assignment is not None
        }

    def shift(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        super().shift(assigned_pods, sign)
        for assigned in assigned_pods:
            if sign > 0 and assigned.assignment is not None:
                self._assignments[assigned.uid] = assigned.assignment
            else:
                self._assignments.pop(assigned.uid, None)

    def show(self) -> None:
        nodes, unit_pools = self._dry_runs.cache.nodes, self._dry_runs.cache.unit_pools
        nodes.free_vfs_of_row[self._row] = self._vf_accounting.free_vfs
        unit_pools.show(self._row, self._node, list(self._assignments.values()))

    def _place(self) -> Chosen | str:
        self.show()
        nodes = self._dry_runs.cache.nodes
        if self._filter is not None and (mark := self._filter.judge(nodes.row_view(self._row))):
            return self._filter.tell(mark)[0]
        return constraints.exact(self._dry_runs.pod_info, nodes, self._row)


class _Wide:
    """What is asked of the cluster as a whole: PodTopologySpread, InterPodAffinity, and the rules about volumes."""

    def __init__(self, dry_runs: DryRuns, row: int) -> None:
        self._dry_runs = dry_runs
        self._row = row
        self._node = dry_runs.cache.nodes.names[row]
        self._pod_counts = dry_runs.cache.pod_counts
        # Known as long as only pods were moved that no rule looks at.
        self._found: Texts | None = dry_runs.objections(row)

    def shift(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        for assigned in assigned_pods:
            self._shift(assigned, sign)

    def _shift(self, assigned: AssignedPod, sign: int) -> None:
        if assigned.volumes:
            self._dry_runs.cache.volumes.usage.shift(self._node, assigned.volumes, sign)
            self._found = None if self._dry_runs.pod_info.volumes else self._found
        if assigned.affinity_info is None or not self._dry_runs.is_watched(assigned.affinity_info):
            return
        if sign > 0:
            self._pod_counts.add(self._row, assigned.affinity_info)
        if self._pod_counts.is_asked_about(assigned.affinity_info):
            self._found = None
        if sign < 0:
            self._pod_counts.remove(self._row, assigned.affinity_info)

    def refusal(self) -> Texts:
        if self._found is None:
            self._found = self._dry_runs.judge(np.array([self._row])).get(self._row, ())
        return self._found
