"""Assign exact VFs of one node to a pod: check what its PFs support and allow, place, and pick the VFs.

Reasons are texts that are counted over nodes, so they name no node. A rate of 0 requests nothing: no reservation, no
limit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mooring.assignment import AssignedVf
from mooring.inventory import Pf
from mooring.request import PodRequest, Spreading, VfRequest
from mooring.settings import VfSettings
from scheduler.constraints.protocol import Proposal
from scheduler.placement.fill import bits
from scheduler.placement.place import REMEMBERED, Fit, OutOfBudget, PfCapacity, VfDemand, eligible_pfs, place
from scheduler.placement.shared_ports import SharedPorts
from scheduler.placement.vf_accounting import FEW, FreeVfs, are_like_others

_NO_SETTINGS = VfSettings()
# Since when each VF has been free, by PF name and VF index; a VF without an entry was never used.
FreeSince = Mapping[tuple[str, int], float]
NOT_ENOUGH = {
    "selectors": "no PF of the requested network, name, link type or rate",
    "vfs": "not enough free RDMA VFs",
    "rate": "not enough free RDMA bandwidth",
    "distinct": "not enough PFs with free VFs for one each",
    "combination": "free RDMA VFs and bandwidth do not fit the interfaces together",
}
OUT_OF_BUDGET = "search for a VF placement ran out of steps"
NOT_SEARCHED = "node(s) not searched yet for a VF placement, the search goes on"


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement on one node: for each interface the index of its PF, and the units of other kinds."""

    pfs: tuple[int, ...]
    others: tuple[tuple[str, Proposal], ...] = ()


def demands_on(request: PodRequest, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...] | str:
    """Return which PFs may give each interface, whatever is free on them; the reason if an interface has none."""
    return (_shared_demands if are_like_others(pfs) else _demands_on)(request, pfs)


def _demands_on(request: PodRequest, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...] | str:
    groups, group_of = _alike(request)
    able = [_able(group, pfs) for group in groups]
    offers = [pf.offer_mbps if pf.up else 0 for pf in pfs]
    lowest, every = min(offers, default=0), (1 << len(pfs)) - 1
    demands = []
    for interface, number in zip(request.interfaces, group_of, strict=True):
        rate, (selected, usable, reasons) = interface.min_tx_rate, able[number]
        fast = every if rate <= lowest else sum(1 << index for index, offer in enumerate(offers) if offer >= rate)
        if not selected & fast:
            return NOT_ENOUGH["selectors"]
        if not usable & fast:
            return min(reasons[index] for index in bits(selected & fast))
        demands.append(VfDemand(rate, usable & fast))
    return tuple(demands)


@lru_cache(maxsize=REMEMBERED)
def _alike(request: PodRequest) -> tuple[tuple[VfRequest, ...], tuple[int, ...]]:
    """Return a request's interfaces in groups that differ by the min rate, name or address only; and each one's group.

    Those of a group are alike to PFs, but for the rate.
    """
    numbers: dict[VfRequest, int] = {}
    found = tuple(numbers.setdefault(_without_values(one), len(numbers)) for one in request.interfaces)
    return tuple(numbers), found


def _without_values(interface: VfRequest) -> VfRequest:
    settings = interface.settings
    mac, guid = ("" if one is not None else None for one in (settings.mac, settings.guid))
    settings = replace(settings, min_tx_rate=1 if settings.min_tx_rate else None, mac=mac, guid=guid)
    return replace(interface, settings=settings, name=None, containers=None)


_shared_demands = lru_cache(maxsize=REMEMBERED)(_demands_on)


def place_on(
    demands: tuple[VfDemand, ...],
    capacities: tuple[PfCapacity, ...],
    spreading: Spreading | None,
    ports: SharedPorts = (),
) -> Placement | str:
    """Return where the interfaces fit, or the reason why they do not."""
    return (_shared_placement if len(capacities) <= FEW else _place_on)(demands, capacities, spreading, ports)


def _place_on(
    demands: tuple[VfDemand, ...], capacities: tuple[PfCapacity, ...], spreading: Spreading | None, ports: SharedPorts
) -> Placement | str:
    outcome = place(demands, capacities, spreading, ports=ports)
    if isinstance(outcome, Fit):
        return Placement(outcome.pfs)
    return OUT_OF_BUDGET if isinstance(outcome, OutOfBudget) else NOT_ENOUGH[outcome.why]


_shared_placement = lru_cache(maxsize=16 * REMEMBERED)(_place_on)


def pick_vfs(
    interfaces: Sequence[VfRequest], free_vfs: FreeVfs, placement: Placement, since: FreeSince
) -> tuple[AssignedVf, ...]:
    """Return the exact VFs: on each PF the ones free the longest, then the lowest."""
    queues = {index: _oldest(free_vfs, index, since, placement.pfs.count(index)) for index in set(placement.pfs)}
    picked = []
    for interface, index in zip(interfaces, placement.pfs, strict=True):
        pf, vf = free_vfs.pfs[index], queues[index].pop()
        picked.append(
            AssignedVf(
                pf=pf.name,
                vf=vf,
                pci=pf.vf_pci(vf),
                link=pf.link,
                network=pf.network,
                settings=interface.settings,
                name=interface.name,
                containers=interface.containers,
            )
        )
    return tuple(picked)


def _oldest(free_vfs: FreeVfs, index: int, since: FreeSince, count: int) -> list[int]:
    """Return a PF's free VFs to take, the first at the end: those never used by index, then those free the longest."""
    name, mask = free_vfs.pfs[index].name, free_vfs.free[index]
    fresh: list[int] = []
    used: list[tuple[float, int]] = []
    while mask and len(fresh) < count:
        low = mask & -mask
        vf = low.bit_length() - 1
        if (name, vf) in since:
            used.append((since[name, vf], vf))
        else:
            fresh.append(vf)
        mask ^= low
    fresh += [vf for _, vf in sorted(used)]
    return fresh[:count][::-1]


def _able(group: VfRequest, pfs: Sequence[Pf]) -> tuple[int, int, dict[int, str]]:
    """Return the selected PFs whatever their rate, those of them that can give the settings, and by PF why not."""
    selected = eligible_pfs(replace(group, settings=_NO_SETTINGS), pfs)
    reasons = {index: refused_settings(group.settings, pfs[index]) for index in bits(selected)}
    return selected, sum(1 << index for index, reason in reasons.items() if not reason), reasons


def refused_settings(settings: VfSettings, pf: Pf) -> str:
    """Return which setting this PF's link, driver, rate or operator refuses, with the reason; empty if none."""
    wishes = _wishes(settings)
    for what, refused in (
        (f"cannot be set on {pf.link} links", lambda wish: wish in _NEVER_ON[pf.link]),
        ("cannot be set by the PF's driver", lambda wish: wish not in pf.can),
    ):
        if found := _first(wishes, refused):
            return f"{found} {what}"
    # Some drivers refuse such a limit, and it limits nothing; an unknown rate excludes nothing.
    if settings.max_tx_rate and settings.max_tx_rate > pf.mbps > 0:
        return f"max_tx_rate {settings.max_tx_rate} is above the line rate of the PF"
    return pf.allow.refused(settings, pf.vlan)


_ZERO_IS_NO_WISH = frozenset({"min_tx_rate", "max_tx_rate", "qos"})
# Settings that an InfiniBand VF does not have, and those that an Ethernet VF does not have. Source: mlx5's eswitch;
# rates, VLAN tags and MACs are Ethernet's there, GUIDs are InfiniBand's.
_NEVER_ON: Mapping[str, frozenset[str]] = {
    "infiniband": frozenset({"min_tx_rate", "max_tx_rate", "vlan", "qos", "mac", "spoofchk"}),
    "ethernet": frozenset({"guid"}),
}


def _wishes(settings: VfSettings) -> list[str]:
    """Return the requested settings; a VF has rate 0 and priority 0 anyway."""
    present = settings.to_fields()
    return [name for name in present if present[name] or name not in _ZERO_IS_NO_WISH]


def _first(wishes: Iterable[str], refused: Callable[[str], bool]) -> str:
    return next((wish for wish in wishes if refused(wish)), "")
