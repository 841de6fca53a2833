"""Another kind of resource for the simulation, as a plug-in package would add it: units of a node."""

from collections.abc import Iterator

from mooring import names
from scheduler.constraints.kinds import Kind, Kinds
from scheduler.constraints.protocol import Beside, NodeSide, PodSide, Proposal, Units

KIND = "fake"
REQUEST, INVENTORY = names.REQUEST_OF + KIND, names.INVENTORY_OF + KIND
# The number of units of each node.
UNITS = 3


class _FakeUnits:
    """A request and an inventory are a number; a unit is ``b0``, ``b1`` and so on."""

    def read_request(self, pod: PodSide) -> int:
        return int(pod.text)

    def read_inventory(self, node: NodeSide) -> dict[str, str]:
        return {f"b{number}": "" for number in range(int(node.text))}

    def judge(self, request: int, left: Units[str]) -> int | str:
        return 50 if len(left.free) >= request else "not enough free units"

    def place(self, request: int, left: Units[str], beside: Beside) -> Iterator[Proposal]:
        yield Proposal(tuple(unit for unit, _ in left.free[:request]))


def kinds() -> Kinds:
    """Return the installed kinds of a scheduler."""
    return Kinds([Kind(KIND, _FakeUnits())])
