"""Plan what `init` does with a PF: how many VFs to create, and which settings to write; or why it must not.

Takes facts and terms and returns a `Plan` or raises `ForbiddenError`; does no I/O. If the PF already has the requested
number of VFs, they stay, and only missing settings are added. So a second run, or a run after a crash, has the same
result.
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
from mooring.nic.refusals import errno_name
from mooring.nic.settings import VfSettings
from mooring.nic.vf_addresses import vf_guid as vf_guid
from mooring.nic.vf_addresses import vf_mac as vf_mac
from mooring.nic.vf_users import NO_FACTS, HostFacts, user_of
from mooring.records.ledger import LedgerEntry

# The driver of a PF's VFs, if it differs from the PF's.
_VF_DRIVERS = {"ice": "iavf", "i40e": "iavf", "ixgbe": "ixgbevf", "igb": "igbvf"}
# A PF reports this MAC for a VF without an admin MAC.
NO_MAC = "00:00:00:00:00:00"
_FIRMWARE = (
    "raise the limit in the device's firmware, for NVIDIA `mlxconfig -d {pci} set SRIOV_EN=1 NUM_OF_VFS={vfs}`, and "
    "restart the machine"
)
# What the kernel's error for sriov_numvfs means (sriov_numvfs_store and sriov_enable in drivers/pci/iov.c, the same in
# Linux 6.12 and 7.2), and what the operator can do.
_ADVICE = {
    errno.ENOMEM: "the BIOS gave the device too little address space or too few buses: enable SR-IOV and "
    "'above 4G decoding' there, or boot with pci=realloc",
    errno.ENOENT: "the driver {driver!r} does not support SR-IOV: load one that does",
    errno.EBUSY: "other VFs exist and cannot be removed: another program makes VFs of this PF, too",
    errno.ERANGE: _FIRMWARE,
    errno.EINVAL: _FIRMWARE,
    errno.ENOSPC: _FIRMWARE,
    # InitialVFs in the SR-IOV capability differs from TotalVFs (sriov_enable), or a command of the driver failed, which
    # mlx5 reports so for most reasons (cmd_status_to_err).
    errno.EIO: "the device's firmware is at fault: it reports another number of initial VFs than of all VFs, or it "
    "rejected a command of the driver: see the kernel's log, update the firmware, or set the number of VFs there again "
    "and restart the machine",
    errno.ENODEV: "the device or the function that its VFs depend on is gone: see the kernel's log",
    errno.EROFS: "sysfs is mounted read-only, but init writes to it",
    errno.EACCES: "init must run privileged",
    errno.EPERM: "init must run privileged",
}


class ForbiddenError(RuntimeError):
    """A PF cannot be prepared; the message says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `init` does with one PF.

    ``recreate``: remove its current VFs first. ``left_out`` names settings of the offer that it does not support.
    ``has_rates``: the VFs' rates can be reset. ``enrols``: every VF must get rates before one gets a min rate. ``mtu``
    is for the PF's netdev, None to leave it. ``sets_guids``: the VFs' GUIDs can be set.
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
    """Return the plan for a PF; raise ForbiddenError.

    ``held`` are the ledger's entries by PCI address, ``mode`` is the eswitch mode that devlink reports, and ``uses``
    are the facts that decide who uses a VF.
    """
    _check_mode(function, pf, link, mode)
    vfs, present = _vf_count(function, pf, init), _number(function, "numvfs")
    if present != vfs:
        _check_users(function, pf, link, vfs, replace(uses, pods=holders(held)))
    if present == 0 and not init.end_lag and link == "ethernet" and _may_be_in_roce_lag(function):
        why = "the PF is in a bond or team: VFs would end the RoCE LAG, which mlx5_core makes only of PFs without VFs"
        raise ForbiddenError(f"{pf}: {why}: to accept that, add `end_lag: true` beside `vfs` in the offer")
    driver = function.driver or ""
    left_out = refused_settings(init.settings, function, link)
    # On InfiniBand the multicast group determines IPoIB's MTU, and the PF's netdev does not limit VFs.
    has_mtu = link == "ethernet"
    has_rates = link == "ethernet" and manages_switch(function)
    return Plan(
        pci=function.address,
        pf=pf,
        vfs=vfs,
        recreate=present != vfs,
        driver=init.driver or _VF_DRIVERS.get(driver, driver),
        settings=_settings(init.settings, left_out, link, function),
        left_out=left_out if has_mtu or init.mtu is None else (*left_out, "mtu"),
        has_rates=has_rates,
        mtu=init.mtu if has_mtu else None,
        enrols=has_rates and driver in MIN_RATE_IS_A_WEIGHT,
        sets_guids="guid" in settings_of(function, link),
    )


def _check_mode(function: PciFunction, pf: str, link: LinkType, mode: EswitchMode | None) -> None:
    if is_in_switchdev(function, mode):
        command = f"`devlink dev eswitch set pci/{function.address} mode legacy`"
        raise ForbiddenError(f"{pf}: the PF is in switchdev mode, which Mooring does not support: {command}")
    if link == "infiniband" and main_netdev(function.netdevs) is None:
        why = "the PF has no netdev, and init needs one to set its VFs' GUIDs and link state"
        raise ForbiddenError(
            f"{pf}: {why}: load ib_ipoib in the host's network namespace, or make the VFs without init"
        )


def _vf_count(function: PciFunction, pf: str, init: Init) -> int:
    """Return how many VFs the PF is to have."""
    total = _number(function, "totalvfs")
    if total == 0:
        raise ForbiddenError(f"{pf}: SR-IOV is off in the device's firmware (sriov_totalvfs 0): {_advice(function, 1)}")
    if init.vfs is not None and init.vfs > total:
        why = f"the offer asks for {init.vfs} VFs, but sriov_totalvfs is {total}"
        raise ForbiddenError(f"{pf}: {why}: {_advice(function, init.vfs)}")
    return total if init.vfs is None else init.vfs


def _check_users(function: PciFunction, pf: str, link: LinkType, vfs: int, uses: HostFacts) -> None:
    """Raise ForbiddenError if a VF is in use, because all VFs have to go for another number of them."""
    if users := dict(_users(function, link, uses)):
        examples = ", ".join(f"{address} ({user})" for address, user in sorted(users.items())[:3])
        present = _number(function, "numvfs")
        why = f"has {present} VFs, the offer asks for {vfs}, and {len(users)} are in use: {examples}"
        raise ForbiddenError(f"{pf}: {why}: drain the node first")


def _may_be_in_roce_lag(function: PciFunction) -> bool:
    """Return whether a PF without VFs may be part of a RoCE LAG, whose RDMA device the host may use.

    mlx5_core builds one from bonded PFs in legacy mode without VFs (mlx5_lag_is_roce_lag). VFs end it:
    mlx5_eswitch_enable takes the LAG down, and mlx5_lag_check_prereq prevents a new one. Only Ethernet PFs join a LAG:
    en_main.c and en_rep.c call mlx5_lag_add_netdev, IPoIB does not (Linux 6.12).
    """
    return function.driver == "mlx5_core" and any(netdev.bonded for netdev in function.netdevs)


def _settings(wished: VfSettings, left_out: tuple[str, ...], link: LinkType, function: PciFunction) -> VfSettings:
    """Return the supported settings of an offer, with defaults for what the offer does not set.

    The default on Ethernet is spoof check on: without it a pod can send from any MAC, and on mlx5 take another VF's MAC
    (mlx5e_set_mac in drivers/net/ethernet/mellanox/mlx5/core/en_main.c does not check). The default on InfiniBand is
    link state "auto": mlx5's VFs start with the policy Down (mlx5_ib_get_vf_config in the kernel's
    drivers/infiniband/hw/mlx5/ib_virt.c), with which no port of theirs becomes active.
    """
    settings = replace(wished, **dict.fromkeys(left_out))
    if link == "ethernet" and settings.spoofchk is None and "spoofchk" in settings_of(function, link):
        return replace(settings, spoofchk=True)
    if link == "infiniband" and settings.link_state is None and "link_state" in settings_of(function, link):
        return replace(settings, link_state="auto")
    return settings


def refusal(function: PciFunction, pf: str, attribute: str, value: str, failure: OSError) -> ForbiddenError:
    """Return the error for a value of a PF's sysfs attribute that the kernel rejected."""
    advice = _ADVICE.get(failure.errno or 0, "see the kernel's log")
    text = advice.format(pci=function.address, vfs=value, driver=function.driver)
    name = errno_name(failure)
    return ForbiddenError(f"{pf}: the kernel rejected {attribute} {value} ({name}): {text}")


def shortfall(function: PciFunction, plan: Plan, made: str) -> ForbiddenError:
    """Return the error for a driver that reported success, but created only ``made`` VFs."""
    fault = f"the driver {function.driver!r} accepted sriov_numvfs {plan.vfs} without an error, but made {made}"
    why = "too few rings are free, virtual machines use VFs, or the firmware is being reset"
    return ForbiddenError(f"{plan.pf}: {fault}: {why}; see the kernel's log")


def vfs_without_guid(function: PciFunction, link: LinkType, terms: Terms, held: Collection[str]) -> tuple[int, ...]:
    """Return the indexes of the VFs that lack a node GUID and are bound, on the host, on offer and not held.

    ``held`` are the PCI addresses of held VFs. On InfiniBand they are VFs that another program made: `init` sets the
    GUID of its own before it binds their driver.
    """
    if not terms.repair_node_guid or (link == "infiniband" and "guid" not in settings_of(function, link)):
        return ()
    indexes = (index for index, vf in sorted(function.vfs.items()) if _lacks_guid(function, vf, link))
    return tuple(index for index in indexes if index not in terms.set_aside and function.vfs[index].address not in held)


def _lacks_guid(function: PciFunction, vf: Vf, link: LinkType) -> bool:
    if link == "infiniband":
        return vf.rdma_here and function.lacks_guid(vf)
    return vf.netdev and node_guid.is_missing(vf.node_guid)


def unchecked_vfs(plan: Plan, kept: Indexes, found: Mapping[int, VfSettings]) -> Indexes:
    """Return the VFs of ``kept`` whose spoof check is off although the plan turns it on; ``kept`` are not changed."""
    if not plan.settings.spoofchk:
        return Indexes()
    return Indexes.of(index for index in kept if index in found and found[index].spoofchk is False)


def settings_in_order(settings: VfSettings, mac: str | None, *, has_rates: bool = True) -> tuple[VfSettings, ...]:
    """Return the settings to write, one message each: MAC, rates, trust, spoofchk, link state.

    spoofchk comes after the MAC, because some drivers check frames against the MAC that is set then. ``mac`` is None on
    InfiniBand, which has no rates either.
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
    """Return the holder of each VF with a ledger entry, by PCI address."""
    unreadable = "its ledger entry cannot be read"
    return {pci: unreadable if entry is None else f"pod {entry.pod}" for pci, entry in ledger.items()}


def _users(function: PciFunction, link: LinkType, uses: HostFacts) -> Iterator[tuple[str, str]]:
    """Yield PCI address and user of each VF that must not be removed."""
    for vf in function.vfs.values():
        if vf.address is None:
            continue
        is_away = vf.driver is not None and not vf.netdev and not _is_by_device(vf, link)
        if vf.address not in uses.pods and is_away:
            yield vf.address, f"driver {vf.driver}, no netdev in the host"
        elif user := user_of(vf.devices, uses):
            yield vf.address, user


def _is_by_device(vf: Vf, link: LinkType) -> bool:
    """Return whether a VF on the host has only an RDMA device and no netdev: InfiniBand without IPoIB."""
    return link == "infiniband" and vf.lacks_netdev and vf.rdma
