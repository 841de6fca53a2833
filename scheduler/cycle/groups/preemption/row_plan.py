"""Some members of a group on one node, and who must leave it for them. Pure.

What it is: all that is of lower priority is taken off in a dry run. The members are put there one after another, each
beside those before it as pods that are nominated there. If all fit, victims are put back as long as all still do:
first those that would violate a disruption budget, then the most important.

Why it is right: a member is judged by the same dry run as a pod that preempts. What leaves anyway is not a victim:
pods that are being deleted, and groups that go as a whole for another node's sake.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cycle.groups.members import alike
from scheduler.cycle.node_dry_run import DryRuns, assigned_pod_for
from scheduler.cycle.nominations import NominatedPods
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import PotentialVictims, Victim, here, importance, split
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import PfCapacity
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs, unused


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Members as assigned to a row, in order, and who must leave for them."""

    row: int
    assigned: tuple[AssignedPod, ...]
    victims: tuple[Victim, ...]


Planning = Generator[None, None, RowPlan | None]
# When a member fits on a row: once those pods have left that end by themselves, once all have left that may, or never.
Leaving = Literal["ending", "lasting", "never"]
# So many of these take as long as a dry run besides: pods that are taken off, pods on other nodes of groups that go as
# a whole, steps of a search for VFs.
_PODS_AS_LONG, _PODS_ELSEWHERE_AS_LONG, _STEPS_AS_LONG = 4, 40, 60
# And so many nodes, pods and victims that are only looked at.
_LOOKED_AT_AS_LONG = 20


class RowPlans:
    """Plans with the cluster as it is in one turn; ``spent`` counts dry runs, and what takes as long.

    ``priority`` is the group's; what is ``below`` another one may leave. ``nominated`` are the pods that are nominated
    on each node. The group's own placed members are not victims: fewer would count then, and what is searched for would
    not be enough.
    """

    def __init__(
        self, cache: Cache, victims: PotentialVictims, budgets: Objections, group: GroupKey, priority: int, below: int
    ) -> None:
        self._cache, self._victims, self._budgets = cache, victims, budgets
        self._group, self._priority, self._below = group, priority, below
        self._nominated: Mapping[str, list[AssignedPod]] = {}
        self._own: Set[str] = frozenset()
        self._of_kind: dict[object, DryRuns] = {}
        self.spent = 0
        self._steps = Steps()

    def begin_turn(self, nominated_pods: NominatedPods) -> None:
        """Read the current state."""
        self._nominated = nominated_pods.counting_for_group(self._group, self._priority)
        self._own = self._victims.placed(self._group)
        self._of_kind.clear()

    def charge(self, dry_runs: int) -> None:
        """Count what takes as long as so many dry runs."""
        self.spent += dry_runs

    @property
    def nominated(self) -> Mapping[str, list[AssignedPod]]:
        return self._nominated

    def of_kind(self, member: PodInfo) -> DryRuns:
        """Return the dry runs of a member and its equals."""
        kind = alike(member), member.uid if member.volumes else ""
        found = self._of_kind.get(kind)
        if found is None:
            found = self._of_kind[kind] = DryRuns(member, self._cache, self._steps)
        return found

    def room(self, rows: Sequence[int]) -> list[FreeVfs]:
        """Return what the PFs of rows have if all leave that may: no plan finds more."""
        nodes, looked_at, found = self._cache.nodes, len(rows), list[FreeVfs]()
        for row in rows:
            left, name = nodes.free_vfs_of_row[row], nodes.names[row]
            if not left.pfs:
                # Also a row that has lost its node.
                found.append(left)
                continue
            going, looked = self._going(name)
            looked_at += looked
            found.append(self._without(name, left, going) if going else left)
        self.charge(1 + looked_at // _LOOKED_AT_AS_LONG)
        return found

    def leaving_for(self, row: int, member: PodInfo) -> Leaving:
        """Return who must leave a row for a member to fit; free VFs are only counted where that suffices."""
        name, before = self._cache.nodes.names[row], self._steps.spent
        going, looked_at = self._going(name)
        lasting = [one for one in going if one.always_restarts and not _is_leaving(one)]
        off = [one for one in going if not one.always_restarts or _is_leaving(one)]
        with self.of_kind(member).on(row, self._nominated.get(name, ()), off=off, by_sums=True) as dry_run:
            found: Leaving = "ending"
            if dry_run.refusal():
                dry_run.take_off(*lasting)
                found = "never" if not lasting or dry_run.refusal() else "lasting"
        self.charge((looked_at + len(going)) // _LOOKED_AT_AS_LONG + (self._steps.spent - before) // _STEPS_AS_LONG)
        return found

    def _going(self, name: str) -> tuple[Collection[AssignedPod], int]:
        """Return who leaves a node or may leave it, and how many pods were looked at."""
        there, below = self._cache.assigned_pods_on(name), self._victims.below(name, self._below, self._own)
        going = {one.uid: one for one in (*filter(_is_leaving, there), *here(below))}
        return going.values(), len(there) + sum([len(one.pods) for one in below])

    def _without(self, name: str, left: FreeVfs, going: Iterable[AssignedPod]) -> FreeVfs:
        """Return what a node's PFs have left and what these pods hold, as if nobody else held it."""
        if left.shared_ports:
            return unused(left.pfs)
        accounting, capacities = self._cache.vf_accounting(name), list(left.capacities)
        for one in going:
            for index, rate in accounting.held(one.uid, one.assignment) if one.assignment is not None else ():
                vfs, mbps = capacities[index]
                capacities[index] = PfCapacity(vfs + 1, mbps + rate)
        return FreeVfs(left.pfs, capacities=tuple(capacities))

    def plan(self, row: int, members: Sequence[PodInfo], gone: Set[str], only: Set[str] | None = None) -> Planning:
        """Find who must leave a row for all of these members; None if they do not fit though all leave.

        It may be left between two dry runs, as long as the row does not change. ``gone`` are the uids of pods that
        leave in any case; if given, ``only`` these pods may leave.
        """
        node = self._cache.nodes.names[row]
        off = [one for one in self._cache.assigned_pods_on(node) if one.uid in gone or _is_leaving(one)]
        if placed := (yield from self._place(row, members, off)):
            return RowPlan(row, placed, ())
        left = {one.uid for one in off}
        below = self._victims.below(node, self._below, self._own)
        self.charge(sum(len(one.pods) for one in below) // _PODS_ELSEWHERE_AS_LONG)
        if only is not None:
            below = [one for one in below if {each.uid for each in one.pods} <= only]
        lower = sorted((one for one in below if not left & {each.uid for each in one.here}), key=importance)
        if not lower or not (yield from self._place(row, members, [*off, *here(lower)])):
            return None
        breaking, others = split(self._budgets, lower)
        doomed = yield from self._not_reprieved(row, members, [*off, *here(others)], breaking)
        chosen = [*doomed, *(yield from self._not_reprieved(row, members, [*off, *here(doomed)], others))]
        placed = yield from self._place(row, members, [*off, *here(chosen)])
        return RowPlan(row, placed, tuple(sorted(chosen, key=importance))) if placed else None

    def _not_reprieved(
        self, row: int, members: Sequence[PodInfo], off: Sequence[AssignedPod], victims: Sequence[Victim]
    ) -> Generator[None, None, list[Victim]]:
        """Put victims back in order while all members fit; return those that must stay off."""
        if not victims or (yield from self._place(row, members, off)):
            return []
        if len(victims) == 1:
            return list(victims)
        half = len(victims) // 2
        first = yield from self._not_reprieved(row, members, [*off, *here(victims[half:])], victims[:half])
        return [*first, *(yield from self._not_reprieved(row, members, [*off, *here(first)], victims[half:]))]

    def _place(
        self, row: int, members: Sequence[PodInfo], off: Sequence[AssignedPod]
    ) -> Generator[None, None, tuple[AssignedPod, ...]]:
        """Return the members as assigned to a row without the pods that are ``off``; empty if not all fit."""
        placed = list[AssignedPod]()
        for member in members:
            yield
            if (assigned := self._place_one(row, member, placed, off)) is None:
                return ()
            placed.append(assigned)
        return tuple(placed)

    def _place_one(
        self, row: int, member: PodInfo, beside: Sequence[AssignedPod], off: Sequence[AssignedPod]
    ) -> AssignedPod | None:
        before, there = self._steps.spent, self._nominated.get(self._cache.nodes.names[row], ())
        with self.of_kind(member).on(row, [*there, *beside], off=off) as dry_run:
            assigned = None if dry_run.refusal() else of_member(dry_run.assigned(), member)
        self.charge(1 + len(off) // _PODS_AS_LONG + (self._steps.spent - before) // _STEPS_AS_LONG)
        is_short = assigned is not None and assigned.assignment is None and bool(member.interfaces)
        return None if is_short else assigned


def of_member(assigned: AssignedPod, member: PodInfo) -> AssignedPod:
    """Return what an equal member is assigned as another member's; equal ones share their dry runs."""
    if assigned.uid == member.uid:
        return assigned
    given = assigned.assignment
    return assigned_pod_for(member, assigned.node, replace(given, uid=member.uid) if given is not None else None)


def _is_leaving(assigned: AssignedPod) -> bool:
    return assigned.affinity_info is not None and assigned.affinity_info.terminating
