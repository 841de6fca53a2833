"""One node for one pod, as it would be with other pods on it: taken off, put on, judged, and put back in the end.

What `ranking` asks of many rows at once is asked here of one node again and again while its pods change, so that it is
kept as plain numbers. Rules about the whole cluster are asked anew only if one of them looks at a pod that was moved.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np

from mooring.assignment import Assignment
from mooring.inventory import Pf
from scheduler.cache.cache import Cluster, Seat
from scheduler.cache.node_columns import PODS, Rows
from scheduler.cycle.sums import AmountSums, Need, VfSums
from scheduler.kube.affinity import Kin
from scheduler.kube.pod_info import Task
from scheduler.placement.assign import OUT_OF_BUDGET, Chosen, pick_vfs, place_on, wants_on
from scheduler.placement.joint import section
from scheduler.placement.place import Room, Want
from scheduler.placement.vf_accounting import Supply
from scheduler.plugins import constraints
from scheduler.plugins.interface import Texts
from scheduler.plugins.node_ports import REASONS as PORTS_TAKEN
from scheduler.plugins.node_ports import clash
from scheduler.plugins.node_resources_fit import counts_on

# Why rules about other pods, and about volumes, refuse some of these rows, by row.
Judge = Callable[[Rows], Mapping[int, Texts]]


class Aspect(Protocol):
    """What one rule looks at on the node."""

    def shift(self, seats: Sequence[Seat], sign: int) -> None:
        """Put pods on (1) or take them off (-1)."""

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
        wanted = sorted(task.resources.items())
        self._needs = [Need(cluster.nodes.line(name), name, amount) for name, amount in wanted if amount > 0]
        self._objections: Mapping[int, Texts] | None = None
        self._watched: dict[Kin, bool] = {}
        self._wants: dict[int, tuple[Want, ...] | str] = {}

    def objections(self, row: int) -> Texts:
        """Return what rules about the whole cluster have against a row as everybody sits now."""
        if self._objections is None:
            self._objections = self.judge(self.cluster.nodes.all_rows())
        return self._objections.get(row, ())

    def wants_on(self, pfs: tuple[Pf, ...]) -> tuple[Want, ...] | str:
        """Return which of these PFs may give each interface; why not, if none may give one of them."""
        # Nodes of one model share their PFs, which stay as long as the trials do.
        found = self._wants.get(id(pfs))
        if found is None:
            request = self.task.request
            found = self._wants[id(pfs)] = wants_on(request, pfs) if request is not None else ()
        return found

    def is_watched(self, kin: Kin) -> bool:
        """Say whether any rule about the whole cluster looks at seated pods of a kin, once all have been asked."""
        found = self._watched.get(kin)
        if found is None:
            found = self._watched[kin] = not self.cluster.census.is_passed_over(kin)
        return found

    def amounts(self, row: int) -> AmountSums:
        nodes = self.cluster.nodes
        return AmountSums(self._needs, nodes.look_at(row).left, nodes.published[row])

    def large_enough(self, rows: Rows) -> Rows:
        """Return the rows that could take the pod if nobody else were there."""
        nodes = self.cluster.nodes
        every = np.arange(nodes.size)
        look = nodes.look(every)
        enough = look.allocatable[PODS] > 0
        for line, name, amount in self._needs:
            lacks = look.allocatable[line] < amount
            if lacks.any():
                enough &= ~(lacks & look.judged(nodes.published, partial(counts_on, name)).astype(bool))
        if self.task.interfaces:
            enough &= look.judged(nodes.offers, self._could_give).astype(bool)
        fit: Rows = rows[enough[rows]]
        return fit

    def _could_give(self, offer: tuple[str, tuple[Pf, ...]]) -> bool:
        """Say whether the interfaces would fit on these PFs if all their VFs were free."""
        _, pfs = offer
        request, wants = self.task.request, self.wants_on(pfs)
        if request is None or isinstance(wants, str):
            return False
        rooms = tuple(Room(len(pf.vfs), pf.offer_mbps) for pf in pfs)
        found = place_on(wants, rooms, request.pfs)
        return not isinstance(found, str) or found == OUT_OF_BUDGET

    @contextmanager
    def on(self, row: int, nominated: Iterable[Seat] = (), *, by_sums: bool = False) -> Iterator["Trial"]:
        """Try a node on which these pods are nominated; when it ends, all is as before.

        With ``by_sums`` what VFs are left is only counted where that is enough: the trial has no `Trial.seat` to tell.
        """
        trial = Trial(self, row, tuple(nominated), by_sums=by_sums)
        try:
            yield trial
        finally:
            trial.restore()


class Trial:
    """One node; pods that are nominated there count beside those that sit there."""

    def __init__(self, trials: Trials, row: int, nominated: tuple[Seat, ...], *, by_sums: bool = False) -> None:
        self._trials = trials
        self._row = row
        self._nominated = nominated
        # Who was moved how often, where that shows outside.
        self._moved: dict[str, tuple[Seat, int]] = {}
        self._given = _given(trials, row)
        self._sums: VfSums | None = None
        if by_sums and not nominated and not trials.task.wishes and self._given is not None:
            self._sums = self._given.sums()
        self._amounts = None if trials.only_gives else trials.amounts(row)
        self._aspects = list(self._judging())
        self._shifts = [aspect.shift for aspect in self._aspects]
        self._shows = any(isinstance(aspect, _Vfs | _Wide) for aspect in self._aspects)
        self._is_plain = self._aspects == [self._amounts]
        self.put_on(*nominated)

    def _judging(self) -> Iterator[Aspect]:
        trials, row = self._trials, self._row
        if self._amounts is not None:
            yield self._amounts
            if trials.task.ports:
                yield _Ports(trials, row)
        if self._sums is not None:
            yield self._sums
        elif self._given is not None:
            yield self._given
        # Nobody who goes makes such a rule speak of the pod, but a nominated one may keep it away.
        keeps_away = any(seat.kin is not None and seat.kin.repelled for seat in self._nominated)
        if not trials.only_gives and (trials.is_wide or keeps_away):
            yield _Wide(trials, row)

    def take_off(self, *seats: Seat) -> None:
        self._move(seats, -1)

    def put_on(self, *seats: Seat) -> None:
        self._move(seats, 1)

    def admits(self, seats: Sequence[Seat]) -> bool:
        """Put pods back if the trial's pod, which fits now, fits beside them too; say whether they are back."""
        if self._amounts is not None and not self._amounts.leave_room_for(seats):
            return False
        self.put_on(*seats)
        if self._is_plain or not self.refusal():
            return True
        self.take_off(*seats)
        return False

    def refusal(self) -> Texts:
        """Return why the pod may not be here now; none if it may.

        Where it looks for others it must find them among those that sit here: who is nominated may never come.
        """
        found = self._refusal()
        if found or not self._nominated or not self._trials.task.kin.attracted:
            return found
        self.take_off(*self._nominated)
        found = self._refusal()
        self.put_on(*self._nominated)
        return found

    def seat(self) -> Seat:
        """Return what the pod would be here, with the VFs and other units that it would get if there are enough."""
        node = self._trials.cluster.nodes.names[self._row]
        return stand_for(self._trials.task, node, self._given.assignment() if self._given is not None else None)

    def restore(self) -> None:
        for seat, net in list(self._moved.values()):
            if net:
                self._move((seat,), -net)
        if self._given is not None:
            self._given.show()

    def _move(self, seats: Sequence[Seat], sign: int) -> None:
        if self._shows:
            for seat in seats:
                self._moved[seat.uid] = seat, self._moved.get(seat.uid, (seat, 0))[1] + sign
        for shift in self._shifts:
            shift(seats, sign)

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


class _Ports:
    """NodePorts."""

    def __init__(self, trials: Trials, row: int) -> None:
        self._wanted = trials.task.ports
        seats = trials.cluster.seats_on(trials.cluster.nodes.names[row])
        self._taken = {seat.uid: seat.ports for seat in seats if seat.ports}

    def shift(self, seats: Sequence[Seat], sign: int) -> None:
        for seat in seats:
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
        self._wants = trials.wants_on(self._stock.pfs)

    def shift(self, seats: Sequence[Seat], sign: int) -> None:
        move = self._stock.add if sign > 0 else self._stock.remove
        for seat in seats:
            if (claim := seat.claim) is not None:
                move(claim)

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

    def sums(self) -> VfSums | None:
        """Return the same as mere sums; None where VFs overlap, so that sums do not tell."""
        request = self._trials.task.request
        if request is None or isinstance(self._wants, str) or not self._stock.is_plain:
            return None
        return VfSums(self._stock, self._wants, request.pfs)

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

    def shift(self, seats: Sequence[Seat], sign: int) -> None:
        super().shift(seats, sign)
        for seat in seats:
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

    def shift(self, seats: Sequence[Seat], sign: int) -> None:
        for seat in seats:
            self._shift(seat, sign)

    def _shift(self, seat: Seat, sign: int) -> None:
        if seat.volumes:
            self._trials.cluster.storage.usage.shift(self._node, seat.volumes, sign)
            self._found = None if self._trials.task.volumes else self._found
        if seat.kin is None or not self._trials.is_watched(seat.kin):
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
