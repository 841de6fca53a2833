"""What a node's pods leave, as sums that follow as pods are taken off and put on. Pure.

`scheduler.cycle.node_dry_run` asks these again and again for thousands of nodes: they are lists
of integers, and nobody else's.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from mooring.request import Spreading
from scheduler.cache.cache import Seat
from scheduler.cache.node_columns import PODS
from scheduler.placement.assign import place_on
from scheduler.placement.place import Room, Want
from scheduler.placement.vf_accounting import Stock
from scheduler.plugins.interface import Texts
from scheduler.plugins.node_resources_fit import counts_on


class Need(NamedTuple):
    """So much of a resource, and the line of `scheduler.cache.node_columns.Nodes` on which it is kept."""

    line: int
    name: str
    amount: int


class AmountSums:
    """NodeResourcesFit."""

    def __init__(self, needs: Sequence[Need], left: Sequence[int], published: Container[str]) -> None:
        """Take what a node has left by line, and the resources that it publishes."""
        # By how much the number of pods, and each amount that counts here, exceeds what the pod needs.
        self._spare = [left[PODS] - 1]
        self._names: list[str] = []
        for line, name, amount in needs:
            if counts_on(name, published):
                self._spare.append(left[line] - amount)
                self._names.append(name)

    def shift(self, seats: Sequence[Seat], sign: int) -> None:
        self._spare[0] -= sign * len(seats)
        for place, name in enumerate(self._names, 1):
            self._spare[place] -= sign * sum([seat.resources.get(name, 0) for seat in seats])

    def leave_room_for(self, seats: Sequence[Seat]) -> bool:
        """Say whether the trial's pod has room beside these too."""
        if self._spare[0] < len(seats):
            return False
        return all(
            spare >= sum([seat.resources.get(name, 0) for seat in seats])
            for spare, name in zip(self._spare[1:], self._names, strict=True)
        )

    def refusal(self) -> Texts:
        if min(self._spare) >= 0:
            return ()
        lacking = [
            f"Insufficient {name}" for spare, name in zip(self._spare[1:], self._names, strict=True) if spare < 0
        ]
        return ("Too many pods", *lacking) if self._spare[0] < 0 else tuple(lacking)


class VfSums:
    """RdmaVfs where each claim holds VFs of its own: what goes is added to what is left, and what comes taken off."""

    def __init__(self, stock: Stock, wants: tuple[Want, ...], spreading: Spreading | None) -> None:
        self._stock, self._wants, self._spreading = stock, wants, spreading
        self._vfs = [room.vfs for room in stock.supply.rooms]
        self._mbps = [room.mbps for room in stock.supply.rooms]
        # What each pod that was moved holds: index of the PF and rate, a pair for each VF.
        self._held: dict[str, list[tuple[int, int]]] = {}

    def shift(self, seats: Sequence[Seat], sign: int) -> None:
        for seat in seats:
            if seat.assignment is None:
                continue
            held = self._held.get(seat.uid)
            if held is None:
                held = self._held[seat.uid] = self._stock.held(seat.uid, seat.assignment)
            for index, rate in held:
                self._vfs[index] -= sign
                self._mbps[index] -= sign * rate

    def refusal(self) -> Texts:
        rooms = tuple(map(Room, self._vfs, self._mbps))
        found = place_on(self._wants, rooms, self._spreading)
        return (found,) if isinstance(found, str) else ()
