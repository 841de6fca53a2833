"""Compare a pod's VFs with what ADD configured: the live state with the ledger, the record and the chain's result.

Every difference is a text that names the VF and both values; an empty list means no differences. Source: CNI
specification 1.1.0, section 2 (CHECK). For an interface the result counts, because a later plugin in the chain may have
changed it. The ledger has what no result lists.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cni.plan.attachment import differences
from mooring.annotations.assignment import AssignedVf
from mooring.annotations.rates import VfRates
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry
from mooring.records.rates_record import has_rates

# Lengths of addresses as text, with colons: a GUID of 8 bytes, and IPoIB's 20 bytes (INFINIBAND_ALEN).
_GUID_CHARS, _IPOIB_CHARS = 23, 59


@dataclass(frozen=True, slots=True)
class Interface:
    """The present state of a network interface in a pod; addresses have their prefix lengths."""

    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveState:
    """The kernel's state of one VF.

    ``reachable``: the path in its entry still names its namespace. ``settings`` is None if the PF does not report the
    VF. ``rdma``: its RDMA device is in the namespace; None if the device need not be there.
    """

    reachable: bool
    interface: Interface | None = None
    settings: VfSettings | None = None
    rdma: bool | None = None


def from_record(
    vfs: Sequence[AssignedVf], entries: Mapping[str, LedgerEntry], container: str, generation: int | None = None
) -> list[str]:
    """Compare a pod's assignment with the ledger entries of its sandbox, which are by PCI address.

    If the pod's rates changed after the assignment, ``vfs`` have the new rates, and ``generation`` is their generation.
    """
    texts = []
    for vf in vfs:
        entry = entries.get(vf.pci)
        if entry is None or entry.container != container:
            texts.append(f"vf {vf.pci} is assigned to the pod, but the ledger has no entry for it in this sandbox")
        elif (entry.pf, entry.vf) != (vf.pf, vf.vf):
            texts.append(f"vf {vf.pci} is vf {entry.vf} of {entry.pf!r} in the ledger, not vf {vf.vf} of {vf.pf!r}")
        else:
            settings = _required_settings(vf)
            if generation is not None:
                texts += pending_rates(entry, VfRates(vf.settings.min_tx_rate, vf.settings.max_tx_rate), generation)
                settings = replace(settings, min_tx_rate=None, max_tx_rate=None)
            texts += [f"vf {vf.pci} was set differently: {text}" for text in differences(settings, entry.set)]
    assigned_pcis = {vf.pci for vf in vfs}
    return texts + [
        f"vf {pci} is held by this sandbox, but not assigned to the pod"
        for pci in sorted(entries.keys() - assigned_pcis)
    ]


def pending_rates(entry: LedgerEntry, rates: VfRates, generation: int) -> list[str]:
    """Describe the rates of an earlier generation that a VF still has; empty if it has the rates of this one."""
    if has_rates(entry, rates):
        return []
    low, high = entry.reserved_mbps, entry.set.max_tx_rate or 0
    return [
        f"vf {entry.pci}: rates of generation {generation} are not in force: min and max are {low} and {high} Mb/s, "
        f"not {rates.min_tx_rate or 0} and {rates.max_tx_rate or 0}"
    ]


def _required_settings(vf: AssignedVf) -> VfSettings:
    """Return the requested settings that ADD must have set, without 0 and false, which may be a NIC's defaults."""
    unset = {name: None for name, value in vf.settings.to_fields().items() if not value}
    return replace(vf.settings, **unset)


def from_kernel(entry: LedgerEntry, live: LiveState, mtu: int | None, result_interface: Mapping[str, Any]) -> list[str]:
    """Compare one VF with its entry, the MTU of its network (None: unchanged), and its interface in the result."""
    texts = [] if entry.phase == "held" else [f"its ledger entry has phase {entry.phase!r}, not 'held'"]
    if entry.in_doubt:
        texts.append(f"pf {entry.pf!r} refused one of its settings, so the reported settings may not be in force")
    if not live.reachable:
        texts.append(f"network namespace {entry.netns.path!r} no longer belongs to its pod")
    elif live.interface is None:
        texts += [f"interface {entry.ifname!r} is not in the pod"] if entry.has_interface else []
    else:
        expected_mac = result_interface.get("mac") or _recorded_address(entry)
        expected_mtu = result_interface.get("mtu") or mtu or entry.original.mtu
        texts += _from_interface(entry, live.interface, expected_mac, expected_mtu)
    if live.settings is None:
        texts.append(f"pf {entry.pf!r} does not report the settings of vf {entry.vf}")
    else:
        texts += differences(entry.set, live.settings)
    if live.rdma is False:
        texts.append(f"rdma device {entry.rdma!r} is not in the pod")
    return [f"vf {entry.pci}: {text}" for text in texts]


def _recorded_address(entry: LedgerEntry) -> str | None:
    """Return the expected hardware address: the recorded MAC, or for IPoIB the GUID, otherwise the original address."""
    original = entry.original.netdev_mac
    is_ipoib = original is not None and len(original) == _IPOIB_CHARS
    return (entry.set.guid if is_ipoib else entry.set.mac) or original


def _constant_part(address: str) -> str:
    """Return the constant part of a hardware address: a whole MAC, or the GUID in the last 8 of IPoIB's 20 bytes.

    IPoIB's other bytes change. They are flags, the number of a queue pair, which is new whenever the netdev is created
    (ipoib_dev_init_default in drivers/infiniband/ulp/ipoib/ipoib_main.c), and the port's prefix, which the subnet
    manager may change (ipoib_dev_addr_changed_valid in ipoib_ib.c).
    """
    return address.lower()[-_GUID_CHARS:] if len(address) == _IPOIB_CHARS else address.lower()


def _from_interface(
    entry: LedgerEntry, interface: Interface, expected_mac: str | None, expected_mtu: int | None
) -> Iterable[str]:
    if expected_mac and _constant_part(interface.mac) != _constant_part(expected_mac):
        yield f"interface {entry.ifname!r} has mac {interface.mac!r}, not {expected_mac!r}"
    if expected_mtu and interface.mtu != expected_mtu:
        yield f"interface {entry.ifname!r} has mtu {interface.mtu}, not {expected_mtu}"
    if not interface.up:
        yield f"interface {entry.ifname!r} is down"
    for address in entry.addresses:
        if address not in interface.addresses:
            yield f"interface {entry.ifname!r} has lost address {address!r}"


def from_result(entry: LedgerEntry, previous: Mapping[str, Any], netns: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return a VF's interface in the result (empty if it is not listed), and descriptions of what the result lacks.

    A VF without an interface in its pod is in no result. Addresses are compared with the ledger, because results of
    chains do not list them.
    """
    if not entry.has_interface:
        return {}, []
    for interface in previous.get("interfaces") or ():
        if interface.get("name") == entry.ifname and interface.get("sandbox") == netns:
            return interface, []
    return {}, [f"vf {entry.pci}: prevResult has no interface {entry.ifname!r} in {netns!r}"]
