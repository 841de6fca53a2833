"""Divide a pod's interfaces among the PCIe roots of the devices that it has claimed. Pure.

Of ``n`` interfaces beside ``d`` devices each device gets ``n // d`` or one more, so that no device is left out for
another. Which device an interface goes to is free: a claim's devices come in an order that its owner cannot choose. So
every division is tried that differs in what it asks of the node, until one fits. What an interface's own selectors
exclude is not tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from mooring.request import VfRequest

# For each interface the root that it must lie under.
Division = tuple[str, ...]
# Places that are tried for an interface: about 1 µs each.
STEPS = 1 << 14


@dataclass(frozen=True, slots=True)
class Claimed:
    """The devices that a pod has claimed on a node: the roots that each lies under. ``title`` names the claims."""

    title: str
    node: str
    devices: tuple[frozenset[str], ...]

    def refusal(self, reason: str) -> str:
        """Return why the VFs are not to be had beside the devices, and what to do: the claims stay allocated."""
        roots = sorted(frozenset().union(*self.devices))
        where = f"under PCIe root{'s' if len(roots) > 1 else ''} {', '.join(roots)} of {self.title}"
        return f"{where}: {reason}. {_REMEDY}"


_REMEDY = (
    "What is claimed stays allocated: free VFs there, or delete the pod and its claim, and have the new claim select "
    "another 'resource.kubernetes.io/pcieRoot'"
)


class OutOfSteps(Exception):  # noqa: N818 - an outcome, not an error
    """More divisions may exist than could be tried."""


@dataclass(slots=True)
class _Devices:
    """Devices that lie under the same roots, the interfaces they may get at most, and those that they have."""

    roots: tuple[str, ...]
    most: int
    given: int = field(default=0)


def divisions(
    interfaces: Sequence[VfRequest], devices: Sequence[frozenset[str]], admitted: Sequence[frozenset[str]]
) -> Iterator[Division]:
    """Yield each division once; raise `OutOfSteps`. ``admitted`` are for each interface the roots that it may have."""
    return _Search(interfaces, devices, admitted).below(())


class _Search:
    def __init__(
        self, interfaces: Sequence[VfRequest], devices: Sequence[frozenset[str]], admitted: Sequence[frozenset[str]]
    ) -> None:
        self._count, self._admitted = len(interfaces), admitted
        # An interface that equals the one before it goes to the same devices or later ones: nothing else would differ.
        plain = [replace(one, name=None, containers=None) for one in interfaces]
        self._repeats = [False, *(one == other for one, other in pairwise(plain))]
        fewest, more = divmod(len(interfaces), len(devices))
        self._more = more
        self._fewest = fewest
        alike: dict[frozenset[str], int] = {}
        for roots in devices:
            alike[roots] = alike.get(roots, 0) + 1
        self._groups = [_Devices(tuple(sorted(roots)), count) for roots, count in alike.items()]
        self._steps = STEPS
        self._yielded: set[Division] = set()

    def below(self, chosen: Division, first: int = 0) -> Iterator[Division]:
        """Yield the divisions that begin so; the interface before went to group ``first``."""
        if len(chosen) == self._count:
            if chosen not in self._yielded:
                self._yielded.add(chosen)
                yield chosen
            return
        start = first if self._repeats[len(chosen)] else 0
        for number in range(start, len(self._groups)):
            group = self._groups[number]
            if not self._may_take(group):
                continue
            group.given += 1
            for root in group.roots:
                self._steps -= 1
                if self._steps < 0:
                    raise OutOfSteps
                if root in self._admitted[len(chosen)]:
                    yield from self.below((*chosen, root), number)
            group.given -= 1

    def _may_take(self, group: _Devices) -> bool:
        """Return whether devices may get one more interface: a full share, or one of the few that are left over."""
        if group.given < group.most * self._fewest:
            return True
        beyond = sum([max(0, one.given - one.most * self._fewest) for one in self._groups])
        return group.given < group.most * (self._fewest + 1) and beyond < self._more
