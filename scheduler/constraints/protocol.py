"""The constraint protocol: a constraint represents one kind of resource beside a node's VFs, or instead of them.

A constraint reads what a pod requests and what a node has, scores how well a node's free units suit, and proposes exact
units. It decides nothing by itself. The scheduler keeps what is used (from the assignments of all pods), checks each
proposal against it, and writes the chosen units into the assignment. `docs/constraints.md` shows how to write one.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from mooring.annotations.inventory import Pf

# Fields of the assignment that the scheduler itself uses, so no kind may have these names.
VFS = "vfs"
RequestT = TypeVar("RequestT", bound=Hashable)
InventoryT_co = TypeVar("InventoryT_co", covariant=True)
LeftT_contra = TypeVar("LeftT_contra", bound=Hashable, contravariant=True)
UnitT = TypeVar("UnitT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ContainerSide:
    """A container's limits, and when it runs; a sidecar is an init container that continues to run."""

    name: str
    limits: Mapping[str, int] = field(default_factory=dict)
    role: Literal["init", "sidecar", "main"] = "main"


@dataclass(frozen=True, slots=True)
class PodSide:
    """A pod that requests the kind: its request's text, how many VFs it requests, and its containers' limits.

    ``resources`` is what the pod needs in all, ``containers`` its init containers and then the others, in its order.
    """

    text: str
    interfaces: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    containers: tuple[ContainerSide, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSide:
    """A node that has the kind: the text of its inventory, and the PFs of its VFs (none without an inventory)."""

    text: str
    pfs: tuple[Pf, ...] = ()


@dataclass(frozen=True, slots=True)
class Units(Generic[UnitT]):
    """The free units of a kind on one node, by id, with what the constraint read of each."""

    free: tuple[tuple[str, UnitT], ...] = ()
    total: int = 0
    # It is hashed several times for each pod that gets some.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.free, self.total)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Proposal:
    """Exact units for one pod on one node.

    ``units`` are their ids, in the order of the request; ``details`` are added to the assignment, as plain JSON.
    ``narrows`` restricts, by kind, the kinds that are placed later; for the VFs (`VFS`) it is a mapping from an
    interface's index to the names of the PFs that may provide it.
    """

    units: tuple[str, ...]
    details: Mapping[str, object] = field(default_factory=dict)
    narrows: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)


# The proposals for the kinds that are placed before, by kind.
Beside = Mapping[str, Proposal]


class Unmet(Exception):  # noqa: N818 - an outcome, not an error
    """Raised by `Constraint.place` with the reason why there is no (further) proposal; the text names no node."""


class Constraint(Protocol[RequestT, InventoryT_co, LeftT_contra]):
    """One kind of resource. Every method is pure: equal arguments, equal results, no I/O, nothing kept.

    The inventory is a mapping from a unit's id to a hashable value about it, and its free part is `Units`.
    """

    def read_request(self, pod: PodSide) -> RequestT | None:
        """Read what a pod requests, None for nothing; raise ValueError with the field and the rule that it breaks."""

    def read_inventory(self, node: NodeSide) -> InventoryT_co:
        """Read what a node has; raise ValueError."""

    def judge(self, request: RequestT, left: LeftT_contra) -> int | str:
        """Return how well the free units suit, from 0 to 100 (best), or a text why they do not, which names no node."""

    def place(self, request: RequestT, left: LeftT_contra, beside: Beside) -> Iterable[Proposal]:
        """Yield proposals for the request, the best first; raise `Unmet` or just end if there are no more.

        ``beside`` has the proposals of the kinds before it in this attempt.
        """
