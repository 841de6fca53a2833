"""Decide from a host's facts what `init` makes of a PF: how many VFs, which settings each, what forbids it.

Takes facts and terms, returns a `Plan` or raises `ForbiddenError`; reads and changes nothing. VFs that exist in the
wanted number stay: only missing settings are added, so that a second run, or one after a crash, has the same result.
"""

import errno
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from advertiser.inventory.driver_settings import manages_switch, refused_settings, settings_of
from advertiser.inventory.facts import EswitchMode, PciFunction, Vf
from advertiser.inventory.offer import Init, Terms
from advertiser.inventory.port import is_in_switchdev, main_netdev
from mooring.indexes import LAST, Indexes
from mooring.names import LinkType
from mooring.nic import node_guid
from mooring.nic.pf_drivers import MIN_RATE_IS_A_WEIGHT
from mooring.nic.settings import VfSettings
from mooring.nic.vf_addresses import vf_guid as vf_guid
from mooring.nic.vf_addresses import vf_mac as vf_mac
from mooring.nic.vf_users import NO_FACTS, HostFacts, user_of
from mooring.records.ledger import LedgerEntry

# The driver of a PF's VFs, if it differs from the PF's.
_VF_DRIVERS = {"ice": "iavf", "i40e": "iavf", "ixgbe": "ixgbevf", "igb": "igbvf"}
# A PF's answer for a VF without an admin MAC.
NO_MAC = "00:00:00:00:00:00"
_FIRMWARE = (
    "raise the limit in the device's firmware, for NVIDIA `mlxconfig -d {pci} set SRIOV_EN=1 NUM_OF_VFS={vfs}`, and "
    "restart the machine"
)
# What a refusal of sriov_numvfs by the kernel means (drivers/pci/iov.c, sriov_enable), and what a person can do.
_ADVICE = {
    errno.ENOMEM: "the BIOS gave the device too little address space or too few buses: enable SR-IOV and "
    "'above 4G decoding' there, or boot with pci=realloc",
    errno.ENOENT: "the driver {driver!r} does not support SR-IOV: load one that does",
    errno.EBUSY: "other VFs exist and cannot be removed: another program makes VFs of this PF, too",
    errno.ERANGE: _FIRMWARE,
    errno.EINVAL: _FIRMWARE,
    errno.ENOSPC: _FIRMWARE,
    errno.EIO: "the device did not answer: enable the IOMMU in the BIOS and boot with iommu=pt",
    errno.ENODEV: "the device has no SR-IOV capability: enable SR-IOV in the BIOS",
    errno.EROFS: "sysfs is mounted read-only, but init writes to it",
    errno.EACCES: "init must run privileged",
    errno.EPERM: "init must run privileged",
}


class ForbiddenError(RuntimeError):
    """A PF that cannot be prepared: which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make of one PF.

    ``recreate``: its present VFs are removed first, ``left_out`` names the settings of the offer that it does not
    support. ``has_rates``: whether the VFs' rates can be reset; ``enrols``: all of them must be given rates before the
    first one gets a min. ``mtu`` is what the PF's netdev gets, None to leave it.
    """

    pci: str
    pf: str
    vfs: int
    recreate: bool
    driver: str
    settings: VfSettings
    left_out: tuple[str, ...] = ()
    has_rates: bool = True
    mtu: int | None = None
    enrols: bool = False
    sets_guids: bool = True


def plan(
    function: PciFunction,
    pf: str,
    link: LinkType,
    init: Init,
    held: Mapping[str, LedgerEntry | None],
    mode: EswitchMode | None = None,
    uses: HostFacts = NO_FACTS,
) -> Plan:
    """Decide; ``held`` are the ledger's entries by PCI address, ``mode`` is devlink's. Raise ForbiddenError.

    ``uses`` are the facts that decide who uses a VF.
    """
    if is_in_switchdev(function, mode):
        command = f"`devlink dev eswitch set pci/{function.address} mode legacy`"
        raise ForbiddenError(f"{pf}: the PF is in switchdev mode, which Mooring does not support: {command}")
    if link == "infiniband" and main_netdev(function.netdevs) is None:
        why = "the PF has no netdev, and init needs one to set its VFs' GUIDs and link state"
        raise ForbiddenError(
            f"{pf}: {why}: load ib_ipoib in the host's network namespace, or make the VFs without init"
        )
    total, present = (_number(function, name) for name in ("totalvfs", "numvfs"))
    if total == 0:
        raise ForbiddenError(f"{pf}: SR-IOV is off in the device's firmware (sriov_totalvfs 0): {_advice(function, 1)}")
    wanted = total if init.vfs is None else init.vfs
    if wanted > total:
        why = f"the offer asks for {wanted} VFs, but sriov_totalvfs is {total}"
        raise ForbiddenError(f"{pf}: {why}: {_advice(function, wanted)}")
    users = dict(_users(function, link, replace(uses, pods=holders(held)))) if present != wanted else {}
    if users:
        some = ", ".join(f"{address} ({who})" for address, who in sorted(users.items())[:3])
        why = f"has {present} VFs, the offer asks for {wanted}, and {len(users)} are in use: {some}"
        raise ForbiddenError(f"{pf}: {why}: drain the node first")
    if present == 0 and not init.end_lag and link == "ethernet" and _may_be_in_roce_lag(function):
        why = "the PF is in a bond or team: VFs would end the RoCE LAG, which mlx5_core makes only of PFs without VFs"
        raise ForbiddenError(f"{pf}: {why}: to accept that, add `end_lag: true` beside `vfs` in the offer")
    own = function.driver or ""
    left_out = refused_settings(init.settings, function, link)
    # IPoIB's MTU is its multicast group's, and the PF's netdev limits no VF.
    has_mtu = link == "ethernet"
    has_rates = link == "ethernet" and manages_switch(function)
    return Plan(
        pci=function.address,
        pf=pf,
        vfs=wanted,
        recreate=present != wanted,
        driver=init.driver or _VF_DRIVERS.get(own, own),
        settings=_settings(init.settings, left_out, link, function),
        left_out=left_out if has_mtu or init.mtu is None else (*left_out, "mtu"),
        has_rates=has_rates,
        mtu=init.mtu if has_mtu else None,
        enrols=has_rates and own in MIN_RATE_IS_A_WEIGHT,
        sets_guids="guid" in settings_of(function, link),
    )


def _may_be_in_roce_lag(function: PciFunction) -> bool:
    """Return whether a PF without VFs may be part of a RoCE LAG, whose RDMA device the host may use.

    mlx5_core makes one of bonded PFs in legacy mode without VFs (mlx5_lag_is_roce_lag), and VFs end it:
    mlx5_eswitch_enable takes the LAG down, and mlx5_lag_check_prereq then refuses to make it again. Only Ethernet PFs
    join one: mlx5_lag_add_netdev is called by en_main.c and en_rep.c, not by IPoIB (Linux 6.12).
    """
    return function.driver == "mlx5_core" and any(netdev.bonded for netdev in function.netdevs)


def _settings(wished: VfSettings, left_out: tuple[str, ...], link: LinkType, function: PciFunction) -> VfSettings:
    """Return what the PF supports of an offer's settings, and what it gets where the offer names none.

    On Ethernet spoof check: without it a pod may send from any MAC, and on mlx5 take another VF's (mlx5e_set_mac in
    drivers/net/ethernet/mellanox/mlx5/core/en_main.c asks nobody). On InfiniBand link state "auto": mlx5's VFs start
    with the policy Down (mlx5_ib_get_vf_config in the kernel's drivers/infiniband/hw/mlx5/ib_virt.c), and no port of
    theirs would become active.
    """
    taken = replace(wished, **dict.fromkeys(left_out))
    if link == "ethernet" and taken.spoofchk is None and "spoofchk" in settings_of(function, link):
        return replace(taken, spoofchk=True)
    if link == "infiniband" and taken.link_state is None and "link_state" in settings_of(function, link):
        return replace(taken, link_state="auto")
    return taken


def refusal(function: PciFunction, pf: str, attribute: str, value: str, failure: OSError) -> ForbiddenError:
    """Return the error for a kernel that refused this value of a PF's attribute in sysfs."""
    advice = _ADVICE.get(failure.errno or 0, "see the kernel's log")
    text = advice.format(pci=function.address, vfs=value, driver=function.driver)
    name = errno.errorcode.get(failure.errno or 0, str(failure.errno))
    return ForbiddenError(f"{pf}: the kernel rejected {attribute} {value} ({name}): {text}")


def shortfall(function: PciFunction, plan: Plan, made: str) -> ForbiddenError:
    """Return the error for a driver that creates fewer VFs than requested, and reports success."""
    what = f"the driver {function.driver!r} accepted sriov_numvfs {plan.vfs} without an error, but made {made}"
    why = "too few rings are free, virtual machines use VFs, or the firmware is being reset"
    return ForbiddenError(f"{plan.pf}: {what}: {why}; see the kernel's log")


def vfs_without_guid(function: PciFunction, link: LinkType, terms: Terms, held: Collection[str]) -> tuple[int, ...]:
    """Return the VFs that `init` gives a node GUID: bound, on the host, offered, and held by nobody.

    ``held`` are PCI addresses. An InfiniBand VF's GUID is set by itself, before its driver is bound.
    """
    if link != "ethernet" or not terms.repair_node_guid:
        return ()
    lacking = (index for index, vf in sorted(function.vfs.items()) if vf.netdev and node_guid.is_missing(vf.node_guid))
    return tuple(index for index in lacking if index not in terms.set_aside and function.vfs[index].address not in held)


def unchecked_vfs(plan: Plan, kept: Indexes, found: Mapping[int, VfSettings]) -> Indexes:
    """Return those of the VFs that keep their settings whose spoof check is off although the plan has it on."""
    if not plan.settings.spoofchk:
        return Indexes()
    return Indexes.of(index for index in kept if index in found and found[index].spoofchk is False)


def settings_in_order(settings: VfSettings, mac: str | None, *, has_rates: bool = True) -> tuple[VfSettings, ...]:
    """Return what to write, one message each: MAC, rates, trust, spoofchk, link state.

    spoofchk follows the MAC: some drivers check frames against the MAC that the PF has by then. ``mac`` is None on
    InfiniBand, which does not support rates either.
    """
    rates = VfSettings(min_tx_rate=0, max_tx_rate=0) if mac is not None and has_rates else VfSettings()
    wishes = (
        VfSettings(mac=mac),
        rates,
        VfSettings(trust=settings.trust),
        VfSettings(spoofchk=settings.spoofchk),
        VfSettings(link_state=settings.link_state),
    )
    return tuple(wish for wish in wishes if wish != VfSettings())


def _number(function: PciFunction, name: str) -> int:
    text = getattr(function, name)
    if text is None or not (text.isascii() and text.isdigit()) or int(text) > LAST:
        raise ForbiddenError(f"{function.address}: sriov_{name} is {text!r}, not a number of VFs")
    return int(text)


def _advice(function: PciFunction, vfs: int) -> str:
    return _FIRMWARE.format(pci=function.address, vfs=vfs)


def holders(ledger: Mapping[str, LedgerEntry | None]) -> Mapping[str, str]:
    """Return who holds each VF that has a ledger entry."""
    unreadable = "its ledger entry cannot be read"
    return {pci: unreadable if entry is None else f"pod {entry.pod}" for pci, entry in ledger.items()}


def _users(function: PciFunction, link: LinkType, uses: HostFacts) -> Iterator[tuple[str, str]]:
    """Yield the VFs that must stay, and the user of each."""
    for vf in function.vfs.values():
        if vf.address is None:
            continue
        is_away = vf.driver is not None and not vf.netdev and not _is_by_device(vf, link)
        if vf.address not in uses.pods and is_away:
            yield vf.address, f"driver {vf.driver}, no netdev in the host"
        elif user := user_of(vf.devices, uses):
            yield vf.address, user


def _is_by_device(vf: Vf, link: LinkType) -> bool:
    """Return whether a VF is on the host by its RDMA device alone: InfiniBand without IPoIB."""
    return link == "infiniband" and vf.lacks_netdev and vf.rdma
