"""What each namespace holds of the VFs of an entry of the offer that limits its share (`max_share`). Pure.

A placement must leave each namespace within its share of every entry, over all PFs of the entry on the node. The search
for a placement knows slots of a PF, and not of several PFs together. So a placement is searched without the shares
first. If it exceeds one, the search is repeated with as many interfaces on the entry's PFs as the share has left, for
each choice of these, within the steps of one search. Interfaces with equal demands are interchangeable, so few choices
exist. Any placement within the shares is found with one of them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mooring.annotations.inventory import Pf
from scheduler.kube.outcomes import Refused
from scheduler.placement.bin_packing import splits
from scheduler.placement.place import VfDemand
from scheduler.placement.steps import Steps

# A message about several shares names so many of them.
_MAX_REASONS = 4


class Share(NamedTuple):
    """The PFs of one entry on a node, as bits, how many VFs one namespace may hold, and what each holds.

    ``vfs_by_namespace`` has no zeros, and is replaced when it changes.
    """

    pfs: int
    max_vfs: int
    percent: int
    networks: str
    vfs_by_namespace: Mapping[str, int]

    def cap(self, namespace: str) -> "Cap":
        return Cap(self.pfs, self.max_vfs - self.vfs_by_namespace.get(namespace, 0), self, namespace)


class Cap(NamedTuple):
    """How many more VFs of some PFs one namespace may have."""

    pfs: int
    vfs: int
    share: Share
    namespace: str

    def without(self, vfs: int) -> "Cap":
        """Return the cap after the namespace has got more VFs, or given some back (negative)."""
        return self._replace(vfs=self.vfs - vfs)

    def reason(self, count: int) -> str:
        """Return the message for a pod that would get so many of these VFs."""
        share = self.share
        return (
            f"namespace {self.namespace!r} has {share.max_vfs - self.vfs} VFs of {share.networks} and requests "
            f"{count} more; max_share {share.percent} allows it {share.max_vfs}"
        )


def shares_of(pfs: Sequence[Pf]) -> tuple[Share, ...]:
    """Return the shares of a node's PFs with nothing held, in the order of the entries."""
    members: dict[int, list[int]] = {}
    for index, pf in enumerate(pfs):
        if pf.access.max_share is not None:
            members.setdefault(pf.access.entry, []).append(index)
    return tuple([_share([(index, pfs[index]) for index in indexes]) for _, indexes in sorted(members.items())])


def _share(pfs: Sequence[tuple[int, Pf]]) -> Share:
    vf_count = sum([len(pf.vfs) for _, pf in pfs])
    strictest = min([pf.access for _, pf in pfs], key=lambda access: access.max_share or 0)
    networks = sorted({pf.network for _, pf in pfs})
    return Share(
        sum([1 << index for index, _ in pfs]),
        strictest.max_vfs(vf_count),
        strictest.max_share or 0,
        f"network{'s' if len(networks) > 1 else ''} {', '.join(map(repr, networks))}",
        {},
    )


def with_change(shares: tuple[Share, ...], index: int, namespace: str, change: int) -> tuple[Share, ...]:
    """Return the shares after a namespace has got VFs of the PF with this index, or given them back."""
    return tuple([_changed(share, namespace, change) if share.pfs >> index & 1 else share for share in shares])


def _changed(share: Share, namespace: str, change: int) -> Share:
    counts = {**share.vfs_by_namespace, namespace: share.vfs_by_namespace.get(namespace, 0) + change}
    return share._replace(vfs_by_namespace={name: count for name, count in counts.items() if count})


def caps_for(shares: tuple[Share, ...], namespace: str | None) -> tuple[Cap, ...]:
    """Return what a namespace may still have; nothing if the namespace is not known."""
    return tuple([share.cap(namespace) if namespace else Cap(share.pfs, 0, share, "") for share in shares])


def share_excess(pfs: Sequence[int], caps: Sequence[Cap]) -> Refused | None:
    """Return the refusal by the first cap that VFs on these PFs would exceed."""
    for cap in caps:
        if (count := sum([cap.pfs >> index & 1 for index in pfs])) > max(cap.vfs, 0):
            return Refused(cap.reason(count))
    return None


def unavoidable(demands: Sequence[VfDemand], caps: Sequence[Cap]) -> Refused | None:
    """Return the refusal by caps that every placement exceeds, because too many demands have no other PF.

    Each cap is compared alone, then all together: a demand without a network may have PFs of several caps.
    """
    for cap in caps:
        if (count := _count_within(demands, cap.pfs)) > max(cap.vfs, 0):
            return Refused(cap.reason(count))
    count = _count_within(demands, sum([cap.pfs for cap in caps]))
    if count > sum([max(cap.vfs, 0) for cap in caps]):
        return Refused("; ".join([cap.reason(count) for cap in caps[:_MAX_REASONS]]))
    return None


def _count_within(demands: Sequence[VfDemand], pfs: int) -> int:
    """Return how many demands have PFs, and only these."""
    return sum([bool(demand.pfs) and not demand.pfs & ~pfs for demand in demands])


def within(demands: tuple[VfDemand, ...], caps: Sequence[Cap], steps: Steps) -> Iterator[tuple[VfDemand, ...]]:
    """Yield the demands with such restrictions that no placement exceeds a cap, until all placements are covered.

    Each choice costs steps, also one that leads to none within the further caps. Raise OutOfSteps at their limit.
    """
    if not caps:
        yield demands
        return
    for choice in _choices(demands, caps[0]):
        steps.spend(1 + len(demands))
        yield from within(choice, caps[1:], steps)


def _choices(demands: tuple[VfDemand, ...], cap: Cap) -> Iterator[tuple[VfDemand, ...]]:
    """Yield the demands with at most as many on the cap's PFs as it has left."""
    kinds = defaultdict[VfDemand, list[int]](list)
    for index, demand in enumerate(demands):
        if demand.pfs & cap.pfs and demand.pfs & ~cap.pfs:
            kinds[demand].append(index)
    room = max(cap.vfs, 0) - _count_within(demands, cap.pfs)
    if room < 0:
        return
    sizes = [len(indexes) for indexes in kinds.values()]
    if sum(sizes) <= room:
        yield demands
        return
    for counts in splits(sizes, room):
        split_kinds = zip(kinds.values(), counts, strict=True)
        exclusions = {index for indexes, count in split_kinds for index in indexes[count:]}
        yield tuple(
            [demand.within(~cap.pfs) if index in exclusions else demand for index, demand in enumerate(demands)]
        )
