"""What each namespace holds of the VFs of an entry of the offer that limits its share (`max_share`). Pure.

A placement must leave each namespace within its share of every entry, over all PFs of the entry on the node. The search
for a placement knows slots of a PF, and not of several PFs together. So a placement is searched without the shares
first. If it exceeds one, the search is repeated once with only as many interfaces on the entry's PFs as the share has
left. Which of them are there matters only for interfaces of different rates or PFs, of which only one choice is tried.
A request that all shares together cannot hold is refused before.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mooring.annotations.inventory import Pf
from scheduler.kube.refused import Refused
from scheduler.placement.place import VfDemand

# A message about several shares names so many of them.
_MOST_NAMED = 4


class Share(NamedTuple):
    """The PFs of one entry on a node, as bits, and what each namespace holds of their VFs.

    ``most`` is how many VFs one namespace may hold. ``held`` has no zeros, and is replaced when it changes.
    """

    pfs: int
    most: int
    percent: int
    networks: str
    held: Mapping[str, int]

    def cap(self, namespace: str) -> "Cap":
        return Cap(self.pfs, self.most - self.held.get(namespace, 0), self, namespace)


class Cap(NamedTuple):
    """How many more VFs of some PFs one namespace may have."""

    pfs: int
    vfs: int
    share: Share
    namespace: str

    def without(self, vfs: int) -> "Cap":
        """Return the cap after the namespace has got more VFs of these PFs; a negative number gives some back."""
        return self._replace(vfs=self.vfs - vfs)

    def reason(self, wanted: int) -> str:
        """Return the message for a pod that would get so many of these VFs."""
        share = self.share
        return (
            f"namespace {self.namespace!r} has {share.most - self.vfs} VFs of {share.networks} and requests {wanted} "
            f"more; max_share {share.percent} allows it {share.most}"
        )


def shares_of(pfs: Sequence[Pf]) -> tuple[Share, ...]:
    """Return the shares of a node's PFs with nothing held, in the order of the entries."""
    members: dict[int, list[int]] = {}
    for index, pf in enumerate(pfs):
        if pf.access.max_share is not None:
            members.setdefault(pf.access.entry, []).append(index)
    return tuple([_share([(index, pfs[index]) for index in indexes]) for _, indexes in sorted(members.items())])


def _share(pfs: Sequence[tuple[int, Pf]]) -> Share:
    offered = sum([len(pf.vfs) for _, pf in pfs])
    strictest = min([pf.access for _, pf in pfs], key=lambda access: access.max_share or 0)
    networks = sorted({pf.network for _, pf in pfs})
    return Share(
        sum([1 << index for index, _ in pfs]),
        strictest.most_vfs(offered),
        strictest.max_share or 0,
        f"network{'s' if len(networks) > 1 else ''} {', '.join(map(repr, networks))}",
        {},
    )


def with_change(shares: tuple[Share, ...], index: int, namespace: str, change: int) -> tuple[Share, ...]:
    """Return the shares after a namespace has got VFs of the PF with this index, or given them back."""
    return tuple([_with_count(share, namespace, change) if share.pfs >> index & 1 else share for share in shares])


def _with_count(share: Share, namespace: str, change: int) -> Share:
    count = share.held.get(namespace, 0) + change
    other_counts = {name: number for name, number in share.held.items() if name != namespace}
    return share._replace(held={**other_counts, namespace: count} if count else other_counts)


def caps_for(shares: tuple[Share, ...], namespace: str | None) -> tuple[Cap, ...]:
    """Return what a namespace may still have; nothing if the namespace is not known."""
    return tuple([share.cap(namespace) if namespace else Cap(share.pfs, 0, share, "") for share in shares])


def exceeded(pfs: Sequence[int], caps: Sequence[Cap]) -> Refused | None:
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
        return Refused("; ".join([cap.reason(count) for cap in caps[:_MOST_NAMED]]))
    return None


def _count_within(demands: Sequence[VfDemand], pfs: int) -> int:
    """Return how many demands have PFs, and only these."""
    return sum([bool(demand.pfs) and not demand.pfs & ~pfs for demand in demands])


def within(demands: tuple[VfDemand, ...], caps: Sequence[Cap]) -> tuple[VfDemand, ...]:
    """Return the demands with such restrictions that no placement exceeds a cap: as many as it has left keep its PFs.

    These are the demands that have no other PF, then those with the fewest others and the largest rate.
    """
    restricted = list(demands)
    for cap in caps:
        flexible = [index for index, demand in enumerate(restricted) if demand.pfs & cap.pfs and demand.pfs & ~cap.pfs]
        flexible.sort(key=lambda index: ((demands[index].pfs & ~cap.pfs).bit_count(), -demands[index].min_tx_rate))
        room = max(cap.vfs - _count_within(restricted, cap.pfs), 0)
        for index in flexible[room:]:
            restricted[index] = restricted[index]._replace(pfs=restricted[index].pfs & ~cap.pfs)
    return tuple(restricted)
