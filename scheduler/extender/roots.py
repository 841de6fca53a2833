"""Divide a pod's interfaces among the PCIe roots of its claimed devices. Pure.

With ``n`` interfaces and ``d`` devices, each device gets ``n // d`` or one more, so that no device gets none while
another has several. The device for an interface is free to choose, because the order of a claim's devices is not under
its owner's control. All divisions with different requirements on the node are tried until one fits. Skipped are
divisions that an interface's own selectors exclude, or that exceed the VFs and Mb/s of all PFs under a root.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from mooring.annotations.request import VfRequest

# For each interface the root under which it must be.
Division = tuple[str, ...]
# Number of places that are tried for an interface: up to 2 µs each.
STEPS = 1 << 13


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claimed devices of a pod on a node: the roots of each. ``title`` names the claims."""

    title: str
    node: str
    devices: tuple[frozenset[str], ...]

    @property
    def elsewhere(self) -> str:
        """Return the message for another node: where the devices are."""
        return f"{self.title} has devices on node {self.node!r}"

    def refusal(self, reason: str) -> str:
        """Return why the VFs are not available near the devices, and what to do: the claims stay allocated."""
        roots = sorted(frozenset().union(*self.devices))[:_MAX_ROOTS_SHOWN]
        place = f"under PCIe root{'s' if len(roots) > 1 else ''} {', '.join(roots)} of {self.title}"
        return f"{place}: {reason}. {_REMEDY}"


# A node has about eight.
_MAX_ROOTS_SHOWN = 16
_REMEDY = (
    "The claimed devices stay allocated: free VFs there, or delete the pod and its claim, and let the new claim select "
    "another 'resource.kubernetes.io/pcieRoot'"
)


class OutOfSteps(Exception):  # noqa: N818 - an outcome, not an error
    """More divisions may exist than could be tried."""


@dataclass(slots=True)
class RootCapacity:
    """The free capacity of all PFs under a root."""

    vfs: int = 0
    mbps: int = 0


@dataclass(slots=True)
class _Devices:
    """Devices under the same roots, the maximum number of interfaces for them, and the number that they have."""

    roots: tuple[str, ...]
    max_count: int
    count: int = field(default=0)


def divisions(
    interfaces: Sequence[VfRequest],
    devices: Sequence[frozenset[str]],
    admitted: Sequence[frozenset[str]],
    capacities: Mapping[str, RootCapacity] | None = None,
) -> Iterator[Division]:
    """Yield each division once; raise `OutOfSteps`. ``admitted`` are the possible roots of each interface.

    ``capacities`` is what is free under each root; without it everything fits.
    """
    if capacities is not None and not _suffices(capacities, frozenset().union(*devices), interfaces):
        return iter(())
    return _Search(interfaces, devices, admitted, capacities).below(())


def _suffices(capacities: Mapping[str, RootCapacity], roots: frozenset[str], interfaces: Sequence[VfRequest]) -> bool:
    """Return whether there is enough under all the roots together; otherwise a search would try all
    divisions in vain.
    """
    root_capacities = [capacities[root] for root in roots if root in capacities]
    vfs, mbps = (
        sum([capacity.vfs for capacity in root_capacities]),
        sum([capacity.mbps for capacity in root_capacities]),
    )
    return vfs >= len(interfaces) and mbps >= sum([interface.min_tx_rate for interface in interfaces])


class _Search:
    def __init__(
        self,
        interfaces: Sequence[VfRequest],
        devices: Sequence[frozenset[str]],
        admitted: Sequence[frozenset[str]],
        capacities: Mapping[str, RootCapacity] | None,
    ) -> None:
        self._count, self._admitted = len(interfaces), admitted
        self._rates = [interface.min_tx_rate for interface in interfaces]
        self._capacities = (
            None if capacities is None else {root: replace(capacity) for root, capacity in capacities.items()}
        )
        # An interface that equals the previous one goes to the same devices or later ones, which avoids equivalent
        # divisions.
        plain = [replace(interface, name=None, containers=None) for interface in interfaces]
        self._repeats = [False, *(interface == next_interface for interface, next_interface in pairwise(plain))]
        fewest, remainder = divmod(len(interfaces), len(devices))
        self._remainder = remainder
        self._fewest = fewest
        # How many interfaces exceed a full share for each device, and now have a device.
        self._beyond_share = 0
        alike: dict[frozenset[str], int] = {}
        for roots in devices:
            alike[roots] = alike.get(roots, 0) + 1
        self._groups = [_Devices(tuple(sorted(roots)), count) for roots, count in alike.items()]
        self._steps = STEPS
        self._yielded: set[Division] = set()

    def below(self, division: Division, first: int = 0) -> Iterator[Division]:
        """Yield the divisions with this beginning; the previous interface went to group ``first``."""
        if len(division) == self._count:
            if division not in self._yielded:
                self._yielded.add(division)
                yield division
            return
        start = first if self._repeats[len(division)] else 0
        for number in range(start, len(self._groups)):
            group = self._groups[number]
            if not self._may_take(group):
                continue
            is_beyond = group.count >= group.max_count * self._fewest
            group.count += 1
            self._beyond_share += is_beyond
            for root in group.roots:
                self._steps -= 1
                if self._steps < 0:
                    raise OutOfSteps
                if root in self._admitted[len(division)] and self._take(root, self._rates[len(division)]):
                    yield from self.below((*division, root), number)
                    self._give_back(root, self._rates[len(division)])
            group.count -= 1
            self._beyond_share -= is_beyond

    def _take(self, root: str, rate: int) -> bool:
        """Take a VF with this rate under a root if there is one."""
        if self._capacities is None:
            return True
        capacity = self._capacities[root]
        if not capacity.vfs or capacity.mbps < rate:
            return False
        capacity.vfs -= 1
        capacity.mbps -= rate
        return True

    def _give_back(self, root: str, rate: int) -> None:
        if self._capacities is not None:
            self._capacities[root].vfs += 1
            self._capacities[root].mbps += rate

    def _may_take(self, group: _Devices) -> bool:
        """Return whether devices may get one more interface: a full share, or one of the remaining ones."""
        if group.count < group.max_count * self._fewest:
            return True
        return group.count < group.max_count * (self._fewest + 1) and self._beyond_share < self._remainder
