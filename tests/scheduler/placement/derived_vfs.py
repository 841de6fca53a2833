"""PFs and claims of their VFs, and what these leave, derived in one pass: what the accounting must agree with."""

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import Inventory, Pf
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import shares_of, with_change
from scheduler.placement.vf_accounting import (
    EMPTY,
    Claim,
    FreeVfs,
    offers_of,
    shared_ports_of,
    sum_by_port,
    vfs_in_inventory,
)


def small_pf(number: int, vfs: int = 4, **fields: Any) -> Pf:
    """Make a PF of 100 Mb/s."""
    values: dict[str, Any] = {"link": "ethernet", "network": "rail0", "mbps": 100, "offer_mbps": 100, "up": True}
    values |= {"pci": f"000{number}:01:00.0", "vf0": f"000{number}:01:00.2", "can": frozenset({"min_tx_rate"})}
    return Pf(**{"name": f"pf{number}", "vfs": Indexes.of(range(vfs)), **values, **fields})


def claim(uid: str, *vfs: tuple[Pf, int, int], namespace: str = "default") -> Claim:
    """Return a pod's claim of VFs: PF, index and min rate of each."""
    assigned = (
        AssignedVf(pf.name, vf, pf.vf_pci(vf), pf.link, pf.network, VfSettings(min_tx_rate=rate))
        for pf, vf, rate in vfs
    )
    return Claim(uid, Assignment(uid, "n1", tuple(assigned)), f"{namespace}/p")


def free_vfs_of(inventory: Inventory | None, claims: Iterable[Claim]) -> FreeVfs:
    """Compute what is left from all claims."""
    if inventory is None:
        return EMPTY
    rates_by_pf: dict[str, dict[int, int]] = {pf.name: {} for pf in inventory.pfs}
    holders = set[tuple[str, int, str, str]]()
    for claim in claims:
        for vf in vfs_in_inventory(inventory, claim.assignment):
            rates = rates_by_pf[vf.pf]
            rates[vf.vf] = max(rates.get(vf.vf, 0), vf.min_tx_rate)
            holders.add((vf.pf, vf.vf, claim.uid, claim.namespace))
    shares, indexes = shares_of(inventory.pfs), {pf.name: index for index, pf in enumerate(inventory.pfs)}
    for pf_name, _, _, namespace in holders if shares else ():
        shares = with_change(shares, indexes[pf_name], namespace, 1)
    pfs, ports = inventory.pfs, shared_ports_of(inventory.pfs)
    states = [_derive_state(pf, rates_by_pf[pf.name]) for pf in pfs]
    reserved = [rate for _, rate in states]
    return FreeVfs(
        pfs,
        tuple(mask for mask, _ in states),
        tuple(
            PfCapacity(mask.bit_count(), offer - reservation)
            for (mask, _), offer, reservation in zip(
                states, offers_of(pfs, ports), sum_by_port(reserved, ports) if ports else reserved, strict=True
            )
        ),
        ports,
        shares,
    )


def _derive_state(pf: Pf, claims: Mapping[int, int]) -> tuple[int, int]:
    """Return a PF's free VFs as bits, and the Mb/s that its VFs reserve."""
    rates = dict(claims)
    for entry in pf.out:
        for index in entry.vfs if entry.min_tx_rate else ():
            rates[index] = max(rates.get(index, 0), entry.min_tx_rate)
    free = pf.usable.mask
    for index in claims:
        free &= ~(1 << index)
    return free, sum(rates.values())
