"""What a node's PFs have left: the inventory minus every claim of a live or assumed pod.

A claim counts only if its VF exists in the inventory. If two pods claim one VF (after a race between schedulers, or by
a forged annotation), both claims count, so the VF is free only when both pods are gone. An inventory's ``out`` entry
withholds its VFs and the min rate that they still reserve; a VF that is both out and claimed counts once.

PFs with one ``port`` are one cable (socket direct, multi-host, several PCI links to one NIC). Together they may reserve
the smallest of their offers, so that Σ min_tx_rate never exceeds what the port offers, on whichever of its PFs the VFs
are. A PF whose rate is unknown, because it is down, offers nothing itself and does not limit the others. Each of them
shows what the port has left.
"""

import copy
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import sub
from typing import NamedTuple

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import Inventory, Pf
from scheduler.placement.bin_packing import SharedPorts
from scheduler.placement.memo import interner
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import Share, shares_of, with_change

# Numbers of PFs, and of their entries that are out. A node with more is unlikely to equal another, so its results are
# not cached.
MAX_SIMILAR_PFS = 16
_intern = interner(1 << 10)


class Claim(NamedTuple):
    """The VFs that a pod claims, the pod's uid, and its name as ``namespace/name``."""

    uid: str
    assignment: Assignment
    pod: str

    @property
    def namespace(self) -> str:
        return self.pod.partition("/")[0]


def reserve_rates(assignment: Assignment, reserved: Iterable[int]) -> Assignment:
    """Return the claim of an assignment whose VFs reserve other rates than the assigned ones, in Mb/s."""
    vfs = zip(assignment.vfs, reserved, strict=True)
    return replace(
        assignment, vfs=tuple(replace(vf, settings=replace(vf.settings, min_tx_rate=rate)) for vf, rate in vfs)
    )


class FreeVfs(NamedTuple):
    """The PFs of one node, and by the same index what each has free: VFs as bits, and the numbers of VFs and Mb/s.

    ``shared_ports`` are those that the PFs share, ``shares`` what namespaces hold where the operator limits that.
    """

    pfs: tuple[Pf, ...] = ()
    free: tuple[int, ...] = ()
    capacities: tuple[PfCapacity, ...] = ()
    shared_ports: SharedPorts = ()
    shares: tuple[Share, ...] = ()

    @property
    def vf_count(self) -> int:
        return sum([capacity.vfs for capacity in self.capacities])

    @property
    def free_mbps(self) -> int:
        """The Mb/s that no VF reserves on any port; a port with more reserved than it offers counts as 0."""
        if self.shared_ports:
            firsts = set(self.shared_ports)
            return sum([max(capacity.mbps, 0) for index, capacity in enumerate(self.capacities) if index in firsts])
        return sum([capacity.mbps for capacity in self.capacities if capacity.mbps > 0])

    @property
    def offered_vfs(self) -> int:
        return sum(len(pf.vfs) for pf in self.pfs)


EMPTY = FreeVfs()


def full_capacity(pfs: tuple[Pf, ...]) -> FreeVfs:
    """Return the PFs with what they have if no VF is used, in numbers."""
    ports = shared_ports_of(pfs)
    capacities = tuple([PfCapacity(len(pf.vfs), offer) for pf, offer in zip(pfs, offers_of(pfs, ports), strict=True)])
    return FreeVfs(pfs, (), capacities, ports, shares_of(pfs))


def vfs_in_inventory(inventory: Inventory, assignment: Assignment) -> list[AssignedVf]:
    """Return the VFs of an assignment that the inventory lists under the same PF, index and address."""
    pfs = {pf.name: pf for pf in inventory.pfs}
    return [vf for vf in assignment.vfs if (pf := pfs.get(vf.pf)) is not None and pf.lists(vf.vf, vf.pci)]


# Since when each VF has been free, by PF name and VF index; one beyond the end was never used. For each PF one array,
# because a large cluster has some hundred thousand VFs.
FreeSince = Mapping[str, "array[float]"]
NEVER_USED = float("-inf")


def release_vfs(free_since: FreeSince, inventory: Inventory, assignment: Assignment, now: float) -> FreeSince:
    """Return since when VFs are free, after those of an assignment that the inventory lists have been released.

    PFs that the inventory lacks keep their times: a PF may come back.
    """
    vfs, times_by_pf = vfs_in_inventory(inventory, assignment), dict(free_since)
    for pf in {vf.pf for vf in vfs}:
        times, indexes = free_since.get(pf, array("d")), [vf.vf for vf in vfs if vf.pf == pf]
        times = times + array("d", [NEVER_USED]) * (max(indexes) + 1 - len(times))
        for index in indexes:
            times[index] = now
        times_by_pf[pf] = times
    return times_by_pf


class _PfAccount:
    """What one PF has left: ``free`` VFs as bits, and the Mb/s that claims and out VFs reserve together."""

    __slots__ = ("_out", "_rates", "_uids", "_usable", "disputes", "free", "pf", "reserved")

    def __init__(self, pf: Pf) -> None:
        self.pf = pf
        self._out = {index: entry.min_tx_rate for entry in pf.out if entry.min_tx_rate for index in entry.vfs}
        # The pod that claims each VF by uid, of several one; and the rate that all claims of the VF reserve together.
        self._uids: dict[int, str] = {}
        self._rates: dict[int, int] = {}
        self._usable = self.free = pf.usable.mask
        self.reserved = sum(self._out.values())
        # All claims of the VFs that more than one pod claims, by uid; replaced when they change.
        self.disputes: dict[int, Mapping[str, int]] = {}

    def copy(self) -> "_PfAccount":
        account = _PfAccount.__new__(_PfAccount)
        account.pf, account._out, account._usable = self.pf, self._out, self._usable
        account.free, account.reserved = self.free, self.reserved
        account._uids, account._rates = self._uids.copy(), self._rates.copy()
        account.disputes = self.disputes.copy()
        return account

    def claim(self, vf: int, uid: str, rate: int) -> None:
        self.free &= ~(1 << vf)
        if vf in self._uids:
            self._put(vf, {**self._claims_of(vf), uid: rate})
        else:
            self._uids[vf], self._rates[vf] = uid, rate
            self.reserved += max(rate - self._out.get(vf, 0), 0)

    def release(self, vf: int, uid: str) -> None:
        self._put(vf, {claimant: rate for claimant, rate in self._claims_of(vf).items() if claimant != uid})
        if vf not in self._uids:
            # An emptied dict would keep its table.
            self._uids, self._rates = self._uids or {}, self._rates or {}
            self.free |= self._usable & 1 << vf

    def _put(self, vf: int, claims: Mapping[str, int]) -> None:
        self.reserved -= self._rate(vf)
        for entries in (self._uids, self._rates, self.disputes):
            entries.pop(vf, None)
        if claims:
            self._uids[vf], self._rates[vf] = next(iter(claims)), max(claims.values())
        if len(claims) > 1:
            self.disputes[vf] = claims
        self.reserved += self._rate(vf)

    def _claims_of(self, vf: int) -> Mapping[str, int]:
        if vf in self.disputes:
            return self.disputes[vf]
        return {self._uids[vf]: self._rates[vf]} if vf in self._uids else {}

    def rate_of(self, vf: int, uid: str) -> int | None:
        """Return the rate with which a pod claims a VF; None if it does not."""
        return self._claims_of(vf).get(uid)

    def claimants(self, vf: int) -> tuple[str, ...]:
        return tuple(sorted(self._claims_of(vf)))

    def capacity(self) -> PfCapacity:
        return PfCapacity(self.free.bit_count(), self.pf.offer_mbps - self.reserved)

    def _rate(self, vf: int) -> int:
        """Return what a VF reserves: a VF that is both out and claimed, or claimed twice, counts once."""
        return max(self._out.get(vf, 0), self._rates.get(vf, 0))


class VfAccounting:
    """What one node has left, updated claim by claim; always equal to a new instance of the same claims.

    ``model`` are its PFs without their PCIe root, for requests that do not select by it.
    """

    __slots__ = ("_any_out", "_index", "_offers", "_pf_accounts", "_ports", "_shares", "free_vfs", "model", "pfs")

    def __init__(self, inventory: Inventory | None, claims: Iterable[Claim] = ()) -> None:
        self.pfs = _intern_model(inventory.pfs) if inventory is not None else ()
        self.model = _intern_model(_model_of(self.pfs))
        self._index = {pf.name: index for index, pf in enumerate(self.pfs)}
        self._pf_accounts = [_PfAccount(pf) for pf in self.pfs]
        self._any_out = any(pf.out for pf in self.pfs)
        self._ports = shared_ports_of(self.pfs) if any(pf.port is not None for pf in self.pfs) else ()
        self._offers = offers_of(self.pfs, self._ports) if self._ports else []
        # Replaced when it changes.
        self._shares = shares_of(self.pfs)
        for claim in claims:
            self._count(claim)
        # Once for all claims: for each, it would take a quarter of a second on a node with the most PFs and claims.
        self.free_vfs = FreeVfs(self.pfs, (0,) * len(self.pfs), (PfCapacity(0, 0),) * len(self.pfs))
        self._show(range(len(self.pfs)))

    def copy(self) -> "VfAccounting":
        accounting = copy.copy(self)
        accounting._pf_accounts = [pf_account.copy() for pf_account in self._pf_accounts]
        return accounting

    def add(self, claim: Claim) -> None:
        self._show(self._count(claim))

    def _count(self, claim: Claim) -> set[int]:
        """Count a claim; return the PFs that it is on."""
        vfs = self._listed_vfs(claim)
        for index, vf in vfs:
            if self._shares and self._pf_accounts[index].rate_of(vf.vf, claim.uid) is None:
                self._shares = with_change(self._shares, index, claim.namespace, 1)
            self._pf_accounts[index].claim(vf.vf, claim.uid, vf.min_tx_rate)
        return {index for index, _ in vfs}

    def remove(self, claim: Claim) -> None:
        vfs = self._listed_vfs(claim)
        for index, vf in vfs:
            if self._shares and self._pf_accounts[index].rate_of(vf.vf, claim.uid) is not None:
                self._shares = with_change(self._shares, index, claim.namespace, -1)
            self._pf_accounts[index].release(vf.vf, claim.uid)
        self._show({index for index, _ in vfs})

    def disputes(self) -> dict[str, tuple[str, ...]]:
        """Return the PCI addresses that more than one pod claims, with the pods' uids."""
        accounts = [pf_account for pf_account in self._pf_accounts if pf_account.disputes]
        return {account.pf.vf_pci(vf): account.claimants(vf) for account in accounts for vf in sorted(account.disputes)}

    @property
    def is_plain(self) -> bool:
        """Return whether each VF has at most one claim, so that a pod's VFs are free when it is deleted."""
        return not self._any_out and not self.disputes()

    def is_taken(self, claim: Claim) -> bool:
        """Return whether another claim has a VF of this one."""
        return any(self._pf_accounts[index].claimants(vf.vf) for index, vf in self._listed_vfs(claim))

    def held(self, uid: str, assignment: Assignment) -> list[tuple[int, int]]:
        """Return the VFs that a pod's claim holds, as the PF's index and the rate."""
        vfs = [(self._index[vf.pf], vf.vf) for vf in assignment.vfs if vf.pf in self._index]
        rates = [(index, self._pf_accounts[index].rate_of(vf, uid)) for index, vf in vfs]
        return [(index, rate) for index, rate in rates if rate is not None]

    def _listed_vfs(self, claim: Claim) -> list[tuple[int, AssignedVf]]:
        """Return the VFs of a claim that the inventory lists, each with its PF's index."""
        vfs = []
        for vf in claim.assignment.vfs:
            index = self._index.get(vf.pf)
            if index is not None and self.pfs[index].lists(vf.vf, vf.pci):
                vfs.append((index, vf))
        return vfs

    def _show(self, indexes: Iterable[int]) -> None:
        """Recompute what these PFs have left."""
        free, capacities = list(self.free_vfs.free), list(self.free_vfs.capacities)
        for index in indexes:
            free[index], capacities[index] = self._pf_accounts[index].free, self._pf_accounts[index].capacity()
        if self._ports:
            sums = sum_by_port([pf_account.reserved for pf_account in self._pf_accounts], self._ports)
            free_mbps = map(sub, self._offers, sums)
            capacities = [PfCapacity(vfs.bit_count(), mbps) for vfs, mbps in zip(free, free_mbps, strict=True)]
        self.free_vfs = FreeVfs(self.pfs, tuple(free), tuple(capacities), self._ports, self._shares)


def _model_of(pfs: tuple[Pf, ...]) -> tuple[Pf, ...]:
    """Return PFs without fields that no request selects by, and without the PCIe root: they are equal on many nodes."""
    first: dict[str, str] = {}
    ports = [None if pf.port is None else first.setdefault(pf.port, str(index)) for index, pf in enumerate(pfs)]
    return tuple(
        replace(pf, pci="", pcie=(), vf0=None, stride=1, rdma=None, numa=None, out=(), port=port)
        for pf, port in zip(pfs, ports, strict=True)
    )


def _intern_model(pfs: tuple[Pf, ...]) -> tuple[Pf, ...]:
    """Return one instance of equal PFs: nodes of one model share them, and they are compared by identity.

    Only small parts that many nodes have in common are cached: no inventory is kept longer than its node.
    """
    return _intern(pfs) if are_like_others(pfs) else pfs


def are_like_others(pfs: tuple[Pf, ...]) -> bool:
    """Return whether other nodes may have equal PFs."""
    return len(pfs) <= MAX_SIMILAR_PFS and sum([len(pf.out) for pf in pfs]) <= MAX_SIMILAR_PFS


def shared_ports_of(pfs: tuple[Pf, ...]) -> SharedPorts:
    """Return the port of each PF; empty if no two of them share one."""
    first: dict[str, int] = {}
    ports = tuple(index if pf.port is None else first.setdefault(pf.port, index) for index, pf in enumerate(pfs))
    return ports if len(set(ports)) < len(pfs) else ()


def offers_of(pfs: Sequence[Pf], ports: SharedPorts) -> list[int]:
    """Return the Mb/s that each PF may reserve; PFs that share a port share its Mb/s."""
    offers = [pf.offer_mbps for pf in pfs]
    for port in set(ports):
        members = [index for index, member_port in enumerate(ports) if member_port == port]
        offer = min((offers[index] for index in members if pfs[index].mbps), default=0)
        for index in members:
            offers[index] = offer
    return offers


def sum_by_port(amounts: Sequence[int], ports: SharedPorts) -> list[int]:
    """Return for each PF the sum of the amounts over all PFs of its port."""
    sums = [0] * len(ports)
    for amount, port in zip(amounts, ports, strict=True):
        sums[port] += amount
    return [sums[port] for port in ports]
