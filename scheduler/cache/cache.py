"""The cluster in memory: nodes, and the pods that sit on them or are assumed to.

Use is derived, never counted twice: the columns of `scheduler.cache.node_columns` follow every seat as it comes and
goes, and `check` proves them, and everything else that is kept, against a node's `view`, which is derived from scratch.

A pod is assumed from the decision on. Only a definite answer ends that: the watch shows it bound (then what the watch
shows holds), the bind is refused for good (`remove`), or the pod is gone.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Literal

from mooring.assignment import Assignment
from scheduler.cache.node_columns import Nodes
from scheduler.cache.node_info import NOT_READY_S, NodeFacts
from scheduler.cache.pod_counts import Census
from scheduler.cache.unit_pools import Shelves, Unit
from scheduler.cache.volumes.usage import Usage
from scheduler.cache.volumes.volume_cache import Catalogue
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.constraints.protocol import VFS
from scheduler.kube.affinity import Kin
from scheduler.kube.pod_info import HostPort
from scheduler.kube.pod_resources import SCORED, Amounts, add
from scheduler.kube.pod_volumes import NO_VOLUMES, Used
from scheduler.placement.vf_accounting import Claim, Stock, Supply, disputes, existing, supply

# What is new about a pod that was known: nothing, its kin only (its labels, or that it terminates), or what it uses.
Difference = Literal["", "kin", "use"]


@dataclass(slots=True)
class Seat:
    """A pod on a node: what it uses there, and what it counts for when nodes are compared (``scored``).

    Nothing of it changes but ``assumed``, which it is until the API server has shown it bound; ``kin`` is what rules
    about other pods look at. ``preempted`` while it is being deleted for the sake of a pod of higher priority;
    ``started`` is RFC 3339, empty until it has.
    """

    uid: str
    pod: str
    node: str
    resources: Amounts = field(default_factory=dict)
    scored: Amounts = field(default_factory=dict)
    ports: frozenset[HostPort] = frozenset()
    assignment: Assignment | None = None
    assumed: bool = field(default=False, compare=False)
    kin: Kin | None = None
    volumes: Used = NO_VOLUMES
    priority: int = 0
    preempted: bool = False
    started: str = field(default="", compare=False)
    # The pod's resourceVersion when it was read; empty while it is assumed.
    version: str = field(default="", compare=False)
    # The assignment as our Binding carries it, until the API server has shown it: then it need not be read.
    written: str = field(default="", compare=False)

    @property
    def claim(self) -> Claim | None:
        return None if self.assignment is None else Claim(self.uid, self.assignment)

    def differs(self, known: "Seat | None") -> Difference:
        """Say in what a pod differs from what was known of it."""
        if known is None or _besides_kin(self) != _besides_kin(known):
            return "use"
        return "" if self.kin == known.kin else "kin"


_besides_kin = attrgetter(*(one.name for one in fields(Seat) if one.compare and one.name != "kin"))


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node at one moment, derived from scratch: its facts, and what its pods have left."""

    facts: NodeFacts
    used: Mapping[str, int]
    ports: frozenset[HostPort]
    supply: Supply


@dataclass(slots=True)
class _Unready:
    """Nodes that are not Ready, by the time at which nothing new may be given from their inventory."""

    due: list[tuple[float, str]] = field(default_factory=list)

    def await_end(self, facts: NodeFacts) -> None:
        if facts.unready_since is not None:
            heapq.heappush(self.due, (facts.unready_since + NOT_READY_S, facts.name))

    def over(self, now: float) -> Iterator[str]:
        while self.due and self.due[0][0] < now:
            yield heapq.heappop(self.due)[1]


class Cluster:
    """Nodes by name and seats by pod uid; seats on nodes that are not known yet are kept for their coming."""

    def __init__(self, kinds: Kinds = NONE) -> None:
        self.nodes = Nodes()
        self.shelves = Shelves(kinds, self.nodes)
        self.census = Census()
        self.storage = Catalogue()
        self._facts: dict[str, NodeFacts] = {}
        self._seats: dict[str, Seat] = {}
        self._on: dict[str, dict[str, Seat]] = {}
        # How many pods have a priority.
        self._priorities: dict[int, int] = {}
        self._stocks: dict[str, Stock] = {}
        self._free_since: dict[str, dict[tuple[str, int], float]] = {}
        self._unready = _Unready()

    def node(self, name: str) -> NodeFacts | None:
        return self._facts.get(name)

    def node_names(self) -> frozenset[str]:
        return frozenset(self._facts)

    def put_node(self, facts: NodeFacts) -> None:
        known = self._facts.get(facts.name)
        self._facts[facts.name] = facts
        row = self.nodes.put(facts)
        self._unready.await_end(facts)
        if known is None or known.inventory != facts.inventory:
            self._stocks[facts.name] = Stock(facts.inventory, self._claims(facts.name))
        if known is None:
            for seat in self._on.get(facts.name, {}).values():
                self._count(row, seat, 1)
            self._list_ports(row, facts.name)
        self.nodes.offers[row] = facts.fault, self._stocks[facts.name].pfs
        self.nodes.offer(row, self._stocks[facts.name].supply.offered_vfs)
        self.nodes.show_supply(row, self._stocks[facts.name].supply)
        if self.nodes.shelves:
            self.shelves.put(row, facts, self._assignments(facts.name))

    def remove_node(self, name: str) -> None:
        if self._facts.pop(name, None) is None:
            return
        row = self.nodes.row_of[name]
        for seat in self._on.get(name, {}).values():
            self._count(row, seat, -1)
        self.nodes.ports[row], self.nodes.offers[row] = frozenset(), ("", ())
        self.shelves.remove(row, name)
        del self._stocks[name]
        self._free_since.pop(name, None)
        self.nodes.remove(name)

    def tick(self, now: float) -> None:
        """Let time pass: a node that has been not Ready for too long gives no VF any more."""
        for name in self._unready.over(now):
            facts = self._facts.get(name)
            if facts is not None and (fault := facts.inventory_fault(now)) != facts.fault:
                row = self.nodes.row_of[name]
                self.nodes.offers[row] = fault, self._stocks[name].pfs
                self.shelves.stop(row, name, fault)
                self.nodes.touch(row, renewed=True)

    def seat(self, uid: str) -> Seat | None:
        return self._seats.get(uid)

    def uids(self) -> list[str]:
        return list(self._seats)

    def seats(self) -> Iterator[Seat]:
        yield from self._seats.values()

    def seats_on(self, node: str) -> Collection[Seat]:
        return self._on.get(node, {}).values()

    def stock(self, node: str) -> Stock:
        """Return what a known node has left; whoever changes it undoes that before anybody else looks."""
        return self._stocks[node]

    def lowest_priority(self) -> int | None:
        """Return the lowest priority that a pod has; None if there is no pod."""
        return min(self._priorities, default=None)

    def put(self, seat: Seat, now: float) -> Difference:
        """Seat a pod, in place of what was known of it; say what is new."""
        known = self._seats.get(seat.uid)
        new = seat.differs(known)
        if known is not None and new != "use":
            # The watch shows what was assumed, or known already; API servers write a node's zone on its pods.
            self._seats[seat.uid] = self._on[seat.node][seat.uid] = seat
            if new == "kin":
                self._recount(known, seat)
            return new
        if known is not None:
            self.remove(seat.uid, now)
        self._seats[seat.uid] = seat
        self._priorities[seat.priority] = self._priorities.get(seat.priority, 0) + 1
        self._on.setdefault(seat.node, {})[seat.uid] = seat
        self._move(seat, 1)
        return new

    def remove(self, uid: str, now: float) -> Seat | None:
        """Take a pod off its node; its VFs are free since ``now`` unless another pod claims them too."""
        seat = self._seats.pop(uid, None)
        if seat is None:
            return None
        self._priorities[seat.priority] -= 1
        if not self._priorities[seat.priority]:
            del self._priorities[seat.priority]
        del self._on[seat.node][uid]
        if not self._on[seat.node]:
            del self._on[seat.node]
        self._move(seat, -1)
        facts = self._facts.get(seat.node)
        if seat.assignment is not None and facts is not None and facts.inventory is not None:
            since = self._free_since.setdefault(seat.node, {})
            since |= {(vf.pf, vf.vf): now for vf in existing(facts.inventory, seat.assignment)}
        return seat

    def confirm(self, uid: str) -> None:
        """Take a pod as bound: the API server has said so."""
        seat = self._seats.get(uid)
        if seat is not None:
            seat.assumed = False

    def free_since(self, node: str) -> Mapping[tuple[str, int], float]:
        """Return when each VF of a node became free, by PF name and index, as far as it is known."""
        return self._free_since.get(node, {})

    def view(self, name: str) -> NodeView:
        """Derive a known node from scratch."""
        facts, seats = self._facts[name], self._on.get(name, {}).values()
        used: dict[str, int] = {}
        for seat in seats:
            used = add(used, dict(_amounts(seat)))
        ports = frozenset(port for seat in seats for port in seat.ports)
        return NodeView(facts, used, ports, supply(facts.inventory, self._claims(name)))

    def disputes(self, name: str) -> Mapping[Unit, tuple[str, ...]]:
        """Return what of a node more than one pod claims, VFs and units of other kinds, with the pods' uids."""
        facts = self._facts.get(name)
        if facts is None:
            return {}
        found = self.shelves.disputes(name, self._claims(name)) if self.nodes.shelves else {}
        if facts.inventory is None or not self._stocks[name].is_disputed:
            return found
        vfs = disputes(facts.inventory, self._claims(name))
        return found | {Unit(VFS, pci): uids for pci, uids in vfs.items()}

    def check(self) -> None:
        """Prove what is kept against what it is derived from; raise AssertionError naming what differs."""
        on_nodes = {uid: seat for seats in self._on.values() for uid, seat in seats.items()}
        assert on_nodes == self._seats, "pods by node differ from pods by uid"
        assert all(seat.node == node for node, seats in self._on.items() for seat in seats.values())
        assert self._priorities == Counter(seat.priority for seat in self._seats.values()), "priorities are miscounted"
        assert self.nodes.row_of.keys() == self._facts.keys() == self._stocks.keys()
        for name, row in self.nodes.row_of.items():
            self._check_row(name, row)
        self.storage.check()
        used = Usage((seat.node, seat.volumes) for seat in self._seats.values())
        assert self.storage.usage == used, "the volumes in use are not those of the pods"
        self.census.check(
            (self.nodes.row_of[seat.node], seat.kin)
            for seat in self._seats.values()
            if seat.kin is not None and seat.node in self._facts
        )

    def _check_row(self, name: str, row: int) -> None:
        view, nodes = self.view(name), self.nodes
        assert nodes.facts[row] == view.facts, f"node {name!r}: the row's facts are not the node's"
        assert nodes.ports[row] == view.ports, f"node {name!r}: the ports differ"
        claimed_twice = disputes(view.facts.inventory, self._claims(name)) if view.facts.inventory else {}
        assert self._stocks[name].is_disputed == bool(claimed_twice), f"node {name!r}: disputes are missed or made up"
        assert nodes.supplies[row] == view.supply, f"node {name!r}: the supply differs from a new one"
        assert nodes.used_of(row) == {name: amount for name, amount in view.used.items() if amount}, f"node {name!r}"
        room = view.supply.offered_vfs, view.supply.free_vfs, view.supply.free_mbps
        assert nodes.vfs_of(row) == room, f"node {name!r}: its VFs are not counted as a new supply has them"
        self.shelves.check(row, name, self._assignments(name))
        free = {pf.name: mask for pf, mask in zip(view.supply.pfs, view.supply.free, strict=True)}
        for claim in self._claims(name) if view.facts.inventory is not None else ():
            for vf in existing(view.facts.inventory, claim.assignment) if view.facts.inventory else ():
                assert not free[vf.pf] >> vf.vf & 1, f"node {name!r}: {vf.pci} is free and pod {claim.uid!r} has it"

    def _move(self, seat: Seat, sign: int) -> None:
        """Count a seat in its node's row, or out of it."""
        if seat.volumes:
            self.storage.usage.shift(seat.node, seat.volumes, sign)
        row, stock = self.nodes.row_of.get(seat.node), self._stocks.get(seat.node)
        if row is None or stock is None:
            return
        self._count(row, seat, sign)
        if seat.ports:
            self._list_ports(row, seat.node)
        if (claim := seat.claim) is not None:
            (stock.add if sign > 0 else stock.remove)(claim)
            self.nodes.show_supply(row, stock.supply)
            if claim.assignment.ext:
                self.shelves.show(row, seat.node, self._assignments(seat.node))
        self.nodes.touch(row)

    def _recount(self, known: Seat, seat: Seat) -> None:
        """Count a seat as it is to other pods now."""
        row = self.nodes.row_of.get(seat.node)
        if row is None or seat.node not in self._stocks:
            return
        if known.kin is not None:
            self.census.remove(row, known.kin)
        if seat.kin is not None:
            self.census.add(row, seat.kin)

    def _count(self, row: int, seat: Seat, sign: int) -> None:
        self.nodes.use(row, _amounts(seat), sign)
        if seat.kin is not None:
            (self.census.add if sign > 0 else self.census.remove)(row, seat.kin)

    def _list_ports(self, row: int, name: str) -> None:
        seats = self._on.get(name, {}).values()
        self.nodes.ports[row] = frozenset(port for seat in seats for port in seat.ports)

    def _claims(self, name: str) -> list[Claim]:
        return [claim for seat in self._on.get(name, {}).values() if (claim := seat.claim) is not None]

    def _assignments(self, name: str) -> list[Assignment]:
        return [claim.assignment for claim in self._claims(name)]


def _amounts(seat: Seat) -> Iterator[tuple[str, int]]:
    yield "pods", 1
    yield from seat.resources.items()
    for name, amount in seat.scored.items():
        yield SCORED[name], amount
