"""One node for one pod, as it would be with other pods on it: taken off, put on, judged, and put back in the end.

What `ranking` asks of many rows at once is asked here of one node again and again while its pods change, so that it is
kept as plain numbers. Rules about the whole cluster are asked anew only if one of them looks at a pod that was moved.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from mooring.assignment import Assignment
from scheduler.assign import Chosen, pick_vfs, place_on, wants_on
from scheduler.cluster import Cluster, Seat
from scheduler.columns import Rows
from scheduler.constraints.joint import section
from scheduler.plugins import constraints
from scheduler.plugins.node_ports import REASONS as PORTS_TAKEN
from scheduler.plugins.node_ports import clash
from scheduler.plugins.node_resources_fit import counts_on
from scheduler.plugins.rule import Texts
from scheduler.supply import Supply
from scheduler.task import Task

# Why rules about other pods, and about volumes, refuse some of these rows, by row.
Judge = Callable[[Rows], Mapping[int, Texts]]


class Aspect(Protocol):
    """What one rule looks at on the node."""

    def shift(self, seat: Seat, sign: int) -> None:
        """Put a pod on (1) or take it off (-1)."""

    def refusal(self) -> Texts:
        """Return the reasons against the node as it is now; none if the rule lets it pass."""


class Trials:
    """The trials of one pod, and what they have in common."""

    def __init__(self, task: Task, cluster: Cluster, judge: Judge, *, is_wide: bool, only_gives: bool = False) -> None:
        """Take what asks rules about the whole cluster; ``is_wide`` if any of them has a say about the pod now.

        With ``only_gives`` just what Mooring itself gives is judged: VFs, and units of other kinds.
        """
        self.task = task
        self.cluster = cluster
        self.judge = judge
        self.is_wide = is_wide
        self.only_gives = only_gives
        self.needs = [("pods", 1), *((name, amount) for name, amount in sorted(task.resources.items()) if amount > 0)]
        self._objections: Mapping[int, Texts] | None = None

    def objections(self, row: int) -> Texts:
        """Return what rules about the whole cluster have against a row as everybody sits now."""
        if self._objections is None:
            self._objections = self.judge(self.cluster.nodes.all_rows())
        return self._objections.get(row, ())

    def is_too_small(self, row: int) -> bool:
        """Say whether a node could not take the pod though nobody else were there."""
        facts = self.cluster.nodes.facts[row]
        allocatable = facts.allocatable if facts is not None else {}
        return any(allocatable.get(name, 0) < amount and counts_on(name, allocatable) for name, amount in self.needs)

    @contextmanager
    def on(self, row: int, nominated: Iterable[Seat] = ()) -> Iterator["Trial"]:
        """Try a node on which these pods are nominated; when it ends, all is as before."""
        trial = Trial(self, row, tuple(nominated))
        try:
            yield trial
        finally:
            trial.restore()


class Trial:
    """One node; pods that are nominated there count beside those that sit there."""

    def __init__(self, trials: Trials, row: int, nominated: tuple[Seat, ...]) -> None:
        self._trials = trials
        self._row = row
        self._nominated = nominated
        self._moved: dict[str, tuple[Seat, int]] = {}
        self._given = _given(trials, row)
        self._aspects = list(self._judging())
        for seat in nominated:
            self.put_on(seat)

    def _judging(self) -> Iterator[Aspect]:
        trials, row = self._trials, self._row
        if not trials.only_gives:
            yield _Amounts(trials, row)
            if trials.task.ports:
                yield _Ports(trials, row)
        if self._given is not None:
            yield self._given
        # Nobody who goes makes such a rule speak of the pod, but a nominated one may keep it away.
        keeps_away = any(seat.kin is not None and seat.kin.repelled for seat in self._nominated)
        if not trials.only_gives and (trials.is_wide or keeps_away):
            yield _Wide(trials, row)

    def take_off(self, seat: Seat) -> None:
        self._move(seat, -1)

    def put_on(self, seat: Seat) -> None:
        self._move(seat, 1)

    def refusal(self) -> Texts:
        """Return why the pod may not be here now; none if it may.

        Where it looks for others it must find them among those that sit here: who is nominated may never come.
        """
        found = self._refusal()
        if found or not self._nominated or not self._trials.task.kin.attracted:
            return found
        for seat in self._nominated:
            self.take_off(seat)
        found = self._refusal()
        for seat in self._nominated:
            self.put_on(seat)
        return found

    def seat(self) -> Seat:
        """Return what the pod would be here, with the VFs and other units that it would get if there are enough."""
        node = self._trials.cluster.nodes.names[self._row]
        return stand_for(self._trials.task, node, self._given.assignment() if self._given is not None else None)

    def restore(self) -> None:
        for seat, net in list(self._moved.values()):
            if net:
                self._move(seat, -net)
        if self._given is not None:
            self._given.show()

    def _move(self, seat: Seat, sign: int) -> None:
        self._moved[seat.uid] = seat, self._moved.get(seat.uid, (seat, 0))[1] + sign
        for aspect in self._aspects:
            aspect.shift(seat, sign)

    def _refusal(self) -> Texts:
        for aspect in self._aspects:
            if found := aspect.refusal():
                return found
        return ()


def stand_for(task: Task, node: str, assignment: Assignment | None = None) -> Seat:
    """Return what a pod that waits would be on a node."""
    return Seat(
        uid=task.uid,
        pod=task.pod.key,
        node=node,
        resources=task.resources,
        scored=task.scored,
        ports=task.ports,
        assignment=assignment,
        assumed=True,
        kin=task.kin,
        volumes=task.volumes,
        priority=task.priority,
    )


class _Amounts:
    """NodeResourcesFit."""

    def __init__(self, trials: Trials, row: int) -> None:
        nodes = trials.cluster.nodes
        facts, used = nodes.facts[row], nodes.used_of(row)
        has = facts.allocatable if facts is not None else {}
        self._needs = [(name, amount) for name, amount in trials.needs[1:] if counts_on(name, has)]
        self._left = {name: has.get(name, 0) - used.get(name, 0) for name, _ in self._needs}
        self._room = has.get("pods", 0) - used.get("pods", 0)

    def shift(self, seat: Seat, sign: int) -> None:
        self._room -= sign
        for name, _ in self._needs:
            amount = seat.resources.get(name)
            if amount:
                self._left[name] -= sign * amount

    def refusal(self) -> Texts:
        lacking = [f"Insufficient {name}" for name, amount in self._needs if self._left[name] < amount]
        return ("Too many pods", *lacking) if self._room < 1 else tuple(lacking)


class _Ports:
    """NodePorts."""

    def __init__(self, trials: Trials, row: int) -> None:
        self._wanted = trials.task.ports
        seats = trials.cluster.seats_on(trials.cluster.nodes.names[row])
        self._taken = {seat.uid: seat.ports for seat in seats if seat.ports}

    def shift(self, seat: Seat, sign: int) -> None:
        if sign > 0:
            self._taken[seat.uid] = seat.ports
        else:
            self._taken.pop(seat.uid, None)

    def refusal(self) -> Texts:
        taken = (port for ports in self._taken.values() for port in ports)
        return PORTS_TAKEN if any(clash(port, other) for other in taken for port in self._wanted) else ()


def assign(task: Task, cluster: Cluster, node: str, supply: Supply, chosen: Chosen) -> Assignment:
    """Return the exact VFs and units for a placement."""
    vfs = pick_vfs(task.interfaces, supply, chosen, cluster.free_since(node))
    ext = {kind: section(proposal) for kind, proposal in chosen.others}
    return Assignment(uid=task.uid, node=node, vfs=vfs, ext=ext)


def _given(trials: Trials, row: int) -> "_Vfs | None":
    if trials.task.wishes:
        return _Kinds(trials, row)
    return _Vfs(trials, row) if trials.task.interfaces else None


class _Vfs:
    """RdmaVfs, exactly: whether the interfaces fit together on the PFs."""

    def __init__(self, trials: Trials, row: int) -> None:
        self._trials = trials
        self._node = trials.cluster.nodes.names[row]
        self._stock = trials.cluster.stock(self._node)
        request = trials.task.request
        self._wants = wants_on(request, self._stock.pfs) if request is not None else ()

    def shift(self, seat: Seat, sign: int) -> None:
        claim = seat.claim
        if claim is not None:
            (self._stock.add if sign > 0 else self._stock.remove)(claim)

    def refusal(self) -> Texts:
        found = self._place()
        return (found,) if isinstance(found, str) else ()

    def assignment(self) -> Assignment | None:
        """Return the exact VFs that the pod would get; None if it would get none."""
        found = self._place()
        if isinstance(found, str):
            return None
        return assign(self._trials.task, self._trials.cluster, self._node, self._stock.supply, found)

    def show(self) -> None:
        """Let others see what is left now."""

    def _place(self) -> Chosen | str:
        request = self._trials.task.request
        if isinstance(self._wants, str) or request is None:
            return str(self._wants)
        return place_on(self._wants, self._stock.supply.rooms, request.pfs)


class _Kinds(_Vfs):
    """Other kinds of resource, and VFs beside them: what is asked about them looks at the node's row."""

    def __init__(self, trials: Trials, row: int) -> None:
        super().__init__(trials, row)
        self._row = row
        self._filter = constraints.prepare(trials.task, trials.cluster.nodes)
        seats = trials.cluster.seats_on(self._node)
        self._assignments = {seat.uid: seat.assignment for seat in seats if seat.assignment is not None}

    def shift(self, seat: Seat, sign: int) -> None:
        super().shift(seat, sign)
        if sign > 0 and seat.assignment is not None:
            self._assignments[seat.uid] = seat.assignment
        else:
            self._assignments.pop(seat.uid, None)

    def show(self) -> None:
        nodes, shelves = self._trials.cluster.nodes, self._trials.cluster.shelves
        nodes.supplies[self._row] = self._stock.supply
        shelves.show(self._row, self._node, list(self._assignments.values()))

    def _place(self) -> Chosen | str:
        self.show()
        nodes = self._trials.cluster.nodes
        if self._filter is not None and (mark := self._filter.judge(nodes.look_at(self._row))):
            return self._filter.tell(mark)[0]
        return constraints.exact(self._trials.task, nodes, self._row)


class _Wide:
    """What is asked of the cluster as a whole: PodTopologySpread, InterPodAffinity, and the rules about volumes."""

    def __init__(self, trials: Trials, row: int) -> None:
        self._trials = trials
        self._row = row
        self._node = trials.cluster.nodes.names[row]
        self._census = trials.cluster.census
        # Known as long as only pods were moved that no rule looks at.
        self._found: Texts | None = trials.objections(row)

    def shift(self, seat: Seat, sign: int) -> None:
        if seat.volumes:
            self._trials.cluster.storage.usage.shift(self._node, seat.volumes, sign)
            self._found = None if self._trials.task.volumes else self._found
        if seat.kin is None:
            return
        if sign > 0:
            self._census.add(self._row, seat.kin)
        if self._census.is_asked_about(seat.kin):
            self._found = None
        if sign < 0:
            self._census.remove(self._row, seat.kin)

    def refusal(self) -> Texts:
        if self._found is None:
            self._found = self._trials.judge(np.array([self._row])).get(self._row, ())
        return self._found
