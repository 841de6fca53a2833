"""The cluster in memory: nodes, and the pods that sit on them or are assumed to.

Use is derived, never counted: a node's `NodeView` is computed from its facts and its pods when somebody asks and
something has changed since. `check` proves every view that is kept against one computed from scratch.

A pod is assumed from the decision on. Only a definite answer ends that: the watch shows it bound (then what the watch
shows holds), the bind is refused for good (`forget`), or the pod is gone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from mooring.assignment import Assignment
from scheduler.nodes import NodeFacts
from scheduler.objects import Port
from scheduler.resources import add
from scheduler.supply import Claim, Supply, disputes, existing, supply


@dataclass(frozen=True, slots=True)
class Seat:
    """A pod on a node: what it uses there. ``assumed`` until the API server has shown it bound."""

    uid: str
    pod: str
    node: str
    resources: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    assignment: Assignment | None = None
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node at one moment: its facts, and what its pods have left."""

    facts: NodeFacts
    used: Mapping[str, int]
    pods: int
    ports: tuple[Port, ...]
    supply: Supply

    @property
    def name(self) -> str:
        return self.facts.name


class Cluster:
    """Nodes by name and seats by pod uid; seats on nodes that are not known yet are kept for their coming."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._seats: dict[str, Seat] = {}
        self._on: dict[str, dict[str, Seat]] = {}
        self._views: dict[str, NodeView] = {}
        self._free_since: dict[str, dict[tuple[str, int], float]] = {}

    def node(self, name: str) -> NodeFacts | None:
        return self._nodes.get(name)

    def node_names(self) -> frozenset[str]:
        return frozenset(self._nodes)

    def put_node(self, facts: NodeFacts) -> None:
        self._nodes[facts.name] = facts
        self._views.pop(facts.name, None)

    def remove_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._views.pop(name, None)

    def seat(self, uid: str) -> Seat | None:
        return self._seats.get(uid)

    def seats(self) -> Iterator[Seat]:
        yield from self._seats.values()

    def put(self, seat: Seat, now: float) -> None:
        """Seat a pod, in place of what was known of it."""
        known = self._seats.get(seat.uid)
        if known == seat:
            return
        if known is not None:
            self.remove(seat.uid, now)
        self._seats[seat.uid] = seat
        self._on.setdefault(seat.node, {})[seat.uid] = seat
        self._views.pop(seat.node, None)

    def remove(self, uid: str, now: float) -> Seat | None:
        """Take a pod off its node; its VFs are free since ``now`` unless another pod claims them too."""
        seat = self._seats.pop(uid, None)
        if seat is None:
            return None
        del self._on[seat.node][uid]
        if not self._on[seat.node]:
            del self._on[seat.node]
        self._views.pop(seat.node, None)
        since = self._free_since.setdefault(seat.node, {}) if seat.assignment else {}
        for vf in seat.assignment.vfs if seat.assignment else ():
            since[vf.pf, vf.vf] = now
        return seat

    def confirm(self, uid: str) -> None:
        """Take a pod as bound: the API server has said so."""
        seat = self._seats.get(uid)
        if seat is not None and seat.assumed:
            confirmed = replace(seat, assumed=False)
            self._seats[uid] = self._on[seat.node][uid] = confirmed

    def free_since(self, node: str) -> Mapping[tuple[str, int], float]:
        """Return when each VF of a node became free, by PF name and index, as far as it is known."""
        return self._free_since.get(node, {})

    def view(self, name: str) -> NodeView:
        """Return a known node as it is now."""
        found = self._views.get(name)
        if found is None:
            found = self._views[name] = self._derive(name)
        return found

    def views(self) -> list[NodeView]:
        """Return every known node as it is now, by name."""
        return [self.view(name) for name in sorted(self._nodes)]

    def disputes(self, name: str) -> Mapping[str, tuple[str, ...]]:
        """Return the VFs of a node that more than one pod claims: PCI address to pod uids."""
        facts = self._nodes.get(name)
        return disputes(facts.inventory, self._claims(name)) if facts and facts.inventory else {}

    def check(self) -> None:
        """Prove what is kept against what it is derived from; raise AssertionError naming what differs."""
        on_nodes = {uid: seat for seats in self._on.values() for uid, seat in seats.items()}
        assert on_nodes == self._seats, "pods by node differ from pods by uid"
        assert all(seat.node == node for node, seats in self._on.items() for seat in seats.values())
        for name, kept in self._views.items():
            assert kept == self._derive(name), f"node {name!r}: the view that is kept differs from a new one"
        for name in self._nodes:
            self._check_vfs(name)

    def _check_vfs(self, name: str) -> None:
        facts, free = self._nodes[name], {}
        if facts.inventory is None:
            return
        for pf, mask in zip(self.view(name).supply.pfs, self.view(name).supply.free, strict=True):
            free[pf.name] = mask
        for claim in self._claims(name):
            for vf in existing(facts.inventory, claim.assignment):
                assert not free[vf.pf] >> vf.vf & 1, f"node {name!r}: {vf.pci} is free and pod {claim.uid!r} has it"

    def _derive(self, name: str) -> NodeView:
        facts, seats = self._nodes[name], self._on.get(name, {}).values()
        used: dict[str, int] = {}
        for seat in seats:
            used = add(used, seat.resources)
        ports = tuple(port for seat in seats for port in seat.ports)
        return NodeView(facts, used, len(seats), ports, supply(facts.inventory, self._claims(name)))

    def _claims(self, name: str) -> list[Claim]:
        seats = self._on.get(name, {}).values()
        return [Claim(seat.uid, seat.assignment) for seat in seats if seat.assignment is not None]
