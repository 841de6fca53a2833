"""Which claims and disks the assigned pods use, and on which nodes; pods without volumes cost nothing here. Pure."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TypeVar

from scheduler.kube.pod_volumes import Disk, PodVolumes

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)


class Usage:
    """The volumes in use, updated pod by pod; always equal to a new instance of the same pods."""

    def __init__(self, assigned_pod: Iterable[tuple[str, PodVolumes]] = ()) -> None:
        # Claim keys by node, and nodes by claim key, each with the number of pods.
        self._claims_on: dict[str, Counter[str]] = {}
        self._users: dict[str, Counter[str]] = {}
        # The disks in use by their identity, with their nodes.
        self._disks: dict[tuple[str, ...], Counter[tuple[str, Disk]]] = {}
        for node, volumes in assigned_pod:
            self.shift(node, volumes, 1)

    def copy(self) -> "Usage":
        """Return an independent copy."""
        copy = Usage()
        copy._claims_on, copy._users, copy._disks = self._claims_on.copy(), self._users.copy(), self._disks.copy()
        return copy

    def shift(self, node: str, volumes: PodVolumes, by: int) -> None:
        """Add a pod's volumes on a node (``by`` 1), or remove them (-1)."""
        for claim in volumes.claims:
            _shift(self._claims_on, node, claim.key, by)
            _shift(self._users, claim.key, node, by)
        for disk in volumes.disks:
            _shift(self._disks, disk.identity, (node, disk), by)

    def is_used(self, claim: str) -> bool:
        """Return whether any assigned pod uses a claim."""
        return claim in self._users

    def claims_on(self, node: str) -> Collection[str]:
        return self._claims_on.get(node, ())

    def nodes_in_conflict(self, disk: Disk) -> Iterator[str]:
        """Yield the nodes where a pod uses the disk in a way that excludes others."""
        yield from (node for node, second in self._disks.get(disk.identity, ()) if disk.conflicts(second))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def _shift(counters: dict[Key, Counter[Item]], key: Key, item: Item, by: int) -> None:
    # A copy of the usage may share the counter.
    counter = Counter(counters.get(key))
    counter[item] += by
    if not counter[item]:
        del counter[item]
    if counter:
        counters[key] = counter
    else:
        del counters[key]
