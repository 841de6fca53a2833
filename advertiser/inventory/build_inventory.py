"""Build an inventory from a host's facts; return with it the reasons why NICs and VFs are not on offer.

A NIC that cannot be described is ignored, with a reason, and does not affect others. A PF with unusable VFs is in the
inventory, and the VFs are ``out``, so that the scheduler can report why.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from advertiser.inventory import port
from advertiser.inventory.driver_settings import settings_of
from advertiser.inventory.facts import ClusterFacts, Host, PciFunction, Vf
from advertiser.inventory.guest_nics import why_without_sriov
from advertiser.inventory.matching import UnfitError, candidate, pf_port
from advertiser.inventory.offer import Offer, Terms
from advertiser.inventory.shared_port import PortKey, port_key, with_ports
from advertiser.inventory.vf_state import PfContext, VfLayout, unusable_reason
from mooring.annotations.inventory import Inventory, Out, Pf, TestOutcome, dump_inventory, read_inventory
from mooring.annotations.pf_terms import Allow
from mooring.errors import AnnotationError
from mooring.indexes import LAST, Indexes
from mooring.names import LinkType, is_rdma
from mooring.nic import node_guid
from mooring.nic.pci import vf_address
from mooring.records.hardware_result import MAX_RATE, MIN_RATE

# The check of a hardware test that shows whether a NIC enforces a rate.
_CHECKS: Mapping[str, str] = {"min_tx_rate": MIN_RATE, "max_tx_rate": MAX_RATE}


@dataclass(frozen=True, slots=True)
class IgnoredNic:
    """A NIC that is not in the inventory; ``name`` is its netdev, None without one."""

    pci: str
    why: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class VfWarning:
    """A fault of VFs of the PF ``pf`` that are on offer nevertheless."""

    pf: str
    vfs: Indexes
    why: str


@dataclass(frozen=True, slots=True)
class InventoryResult:
    """A host's inventory, the NICs that are not in it, and faults of VFs on offer."""

    inventory: Inventory
    ignored: tuple[IgnoredNic, ...]
    warnings: tuple[VfWarning, ...] = ()


def build_inventory(host: Host, offer: Offer, cluster_facts: ClusterFacts, node: str) -> InventoryResult:
    """Return the inventory of the node ``node``; never raise, whatever the facts are."""
    pfs: list[Pf] = []
    keys: list[PortKey | None] = []
    other_nics: list[IgnoredNic] = []
    warnings: list[VfWarning] = []
    for function in host.functions:
        netdev = port.main_netdev(function.netdevs)
        try:
            pf, key = _describe(function, host, offer, cluster_facts, node)
            _refuse_unreadable(pf, pfs)
            pfs.append(pf)
            keys.append(key)
            terms = _terms(function, offer, host, node)
            warnings += _warnings(function, pf, repairs_guids=terms.repair_node_guid)
        except UnfitError as unfit:
            other_nics.append(IgnoredNic(function.address, str(unfit), netdev.name if netdev else None))
    inventory = Inventory(host.boot, with_ports(pfs, keys), host.programs, handlers=host.runtime_handlers)
    return InventoryResult(inventory, tuple(other_nics), tuple(warnings))


def _warnings(function: PciFunction, pf: Pf, *, repairs_guids: bool) -> Iterator[VfWarning]:
    """Yield the faults of a PF's VFs on offer; an InfiniBand VF without a GUID is given one before a pod has it.

    In shared mode any pod with NET_ADMIN can rename the RDMA device of a PF (nldev_set_doit in the kernel's
    drivers/infiniband/core/nldev.c). Then only the name is missing from the inventory.
    """
    if pf.rdma is None and function.rdma:
        name = function.rdma[0].name
        yield VfWarning(
            pf.name, pf.usable, f"the PF's RDMA device has the invalid name {name!r}, which is not published"
        )
    without = [index for index, vf in sorted(function.vfs.items()) if node_guid.is_missing(vf.node_guid)]
    usable_indexes = Indexes.of(index for index in without if index in pf.usable)
    if usable_indexes and pf.link == "ethernet":
        yield VfWarning(
            pf.name, usable_indexes, "no node GUID: rdma_cm fails until a MAC is set and the driver is rebound"
        )
    elif (
        usable_indexes
        and not repairs_guids
        and any(function.lacks_guid(function.vfs[index]) for index in usable_indexes)
    ):
        yield VfWarning(
            pf.name, usable_indexes, "no GUID, and the offer's repair_node_guid is false: their ports stay down"
        )


def _describe(
    function: PciFunction, host: Host, offer: Offer, cluster_facts: ClusterFacts, node: str
) -> tuple[Pf, PortKey | None]:
    """Return a PF and its `PortKey`, which PFs on the same cable share; raise UnfitError."""
    vfs = _count(function)
    name, at = pf_port(function)
    terms = _terms(function, offer, host, node)
    vf0, stride = _place(function, vfs)
    on_offer = Indexes((1 << vfs) - 1) - terms.set_aside
    keeps_settings = port.main_netdev(function.netdevs) is not None or function.vf_settings
    can = settings_of(function, at.link) if keeps_settings else frozenset[str]()
    if terms.vlan is not None and "vlan" not in can:
        raise UnfitError(
            f"its VFs cannot get the offer's vlan {terms.vlan}: the PF or its driver does not support VLANs"
        )
    without_guid = _without_guid(function, host, at.link, can, terms)
    context = PfContext(host, cluster_facts, name, _obstacle(function, host), at.link, without_guid)
    pf = Pf(
        name=name,
        pci=function.address,
        link=at.link,
        network=terms.network,
        mbps=at.mbps,
        offer_mbps=terms.offered_mbps(at.mbps),
        up=at.up,
        vfs=on_offer,
        vf0=vf0,
        stride=stride,
        rdma=function.rdma[0].name if function.rdma and is_rdma(function.rdma[0].name) else None,
        numa=port.number(function.numa_node, LAST),
        pcie=function.path,
        can=can,
        allow=_allow(terms),
        out=_outs(_judged(function, VfLayout(vf0, stride, vfs), on_offer, context)),
        vlan=terms.vlan,
        access=terms.access,
        vf_netdevs=_have_netdevs(function, host) if at.link == "infiniband" else None,
        tested=_tested(function, host, can),
    )
    return pf, port_key(function, terms.port)


def _without_guid(
    function: PciFunction, host: Host, link: LinkType, can: Collection[str], terms: Terms
) -> dict[int, str]:
    """Return why InfiniBand VFs cannot be given the GUID that they lack; without one a port does not become active."""
    if link != "infiniband" or not terms.repair_node_guid:
        return {}
    lacking = {index: vf for index, vf in function.vfs.items() if function.lacks_guid(vf)}
    if "guid" not in can:
        return dict.fromkeys(lacking, "no GUID, and the PF has no setting for one: load ib_ipoib")
    failures = ((index, host.guid_failures.get(vf.address or "")) for index, vf in lacking.items())
    return {index: f"no GUID: {failure}" for index, failure in failures if failure is not None}


def _tested(function: PciFunction, host: Host, can: Collection[str]) -> dict[str, TestOutcome]:
    """Return what a hardware test of this PF, with this driver and kernel, found about the rates that it supports."""
    result = host.hardware_results.get(function.address)
    if result is None:
        return {}
    outcomes = {name: result.outcome(_CHECKS[name], function.driver, host.kernel) for name in _CHECKS if name in can}
    return {name: outcome for name, outcome in outcomes.items() if outcome != "not_asked"}


def _have_netdevs(function: PciFunction, host: Host) -> bool:
    """Return whether the VFs of an InfiniBand PF have netdevs, on the host or in pods.

    A VF that is being moved lacks its netdev for a moment, because IPoIB recreates the netdev with the RDMA device.
    Such VFs count as without a netdev only if all VFs lack one.
    """
    with_device = [vf for vf in function.vfs.values() if vf.rdma]
    return not any(vf.lacks_netdev for vf in [vf for vf in with_device if not _moves(vf, host)] or with_device)


def _moves(vf: Vf, host: Host) -> bool:
    entry = host.ledger.get(vf.address or "")
    return vf.address in host.unsettled or (entry is not None and entry.phase != "held")


def _allow(terms: Terms) -> Allow:
    """Return what pods may request; with a forced VLAN also that VLAN, for schedulers that do not know ``vlan``."""
    return terms.allow if terms.vlan is None else replace(terms.allow, vlan=Indexes.of([terms.vlan]))


def _obstacle(function: PciFunction, host: Host) -> str | None:
    if function.address in host.preparing:
        return "preparing"
    return port.obstacle(function, host.eswitch.get(function.address))


def _count(function: PciFunction) -> int:
    """Return the PF's current number of VFs; raise UnfitError if it has none or sysfs is inconsistent."""
    if not function.sriov:
        raise UnfitError(why_without_sriov(function))
    counts: dict[str, int] = {}
    for name, text in (("sriov_totalvfs", function.totalvfs), ("sriov_numvfs", function.numvfs)):
        count = port.number(text, LAST)
        if count is None:
            raise UnfitError(f"{name} is {_shown(text)}, not a number of VFs")
        counts[name] = count
    total, vfs = counts["sriov_totalvfs"], counts["sriov_numvfs"]
    if total == 0:
        raise UnfitError("sriov_totalvfs is 0: SR-IOV is off in the device's firmware")
    if vfs == 0:
        raise UnfitError(f"no VFs: sriov_numvfs is 0 of {total}")
    if vfs > total:
        raise UnfitError(f"sriov_numvfs {vfs} exceeds sriov_totalvfs {total}")
    return vfs


def _terms(function: PciFunction, offer: Offer, host: Host, node: str) -> Terms:
    terms = offer.terms(candidate(function, host, node))
    if terms is None:
        raise UnfitError("not on offer")
    # An assigned VF had an RDMA device when it was assigned, wherever that is now. That also holds for unsettled VFs.
    if not any(vf.rdma or vf.address in host.ledger or vf.address in host.unsettled for vf in function.vfs.values()):
        raise UnfitError("none of its VFs has an RDMA device")
    return terms


def _place(function: PciFunction, vfs: int) -> tuple[str, int]:
    """Return VF 0's PCI address and the stride, from sriov_offset and sriov_stride.

    Kernels before 4.13 do not have these files; there both come from the addresses of the first VFs.
    """
    offset, stride = port.number(function.offset, LAST), port.number(function.stride, LAST)
    try:
        if offset is None or stride is None:
            return _place_by_vfs(function)
        # With one VF the stride can have any value (PCIe base specification, SR-IOV, VF Stride).
        stride = max(stride, 1) if vfs == 1 else stride
        if stride == 0:
            raise UnfitError(f"sriov_stride is 0 with {vfs} VFs")
        vf0 = vf_address(function.address, 1, offset)
        vf_address(vf0, stride, vfs - 1)
    except ValueError as error:
        raise UnfitError(str(error)) from None
    return vf0, stride


def _place_by_vfs(function: PciFunction) -> tuple[str, int]:
    first, second = (function.vfs[index].address if index in function.vfs else None for index in (0, 1))
    if first is None:
        raise UnfitError(f"sriov_offset is {_shown(function.offset)} and virtfn0 is not a link to a VF")
    if second is None:
        return first, 1
    stride = next((stride for stride in range(1, 257) if vf_address(first, stride, 1) == second), None)
    if stride is None:
        raise UnfitError(f"virtfn1 at {second} does not follow virtfn0 at {first}")
    return first, stride


def _judged(
    function: PciFunction, layout: VfLayout, on_offer: Indexes, context: PfContext
) -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield index, reason and reserved min rate in Mb/s of each VF that cannot be used."""
    for index in range(layout.vfs):
        reason = unusable_reason(index, function.vfs.get(index), layout, context)
        # A VF that the operator has set aside is listed only if a rate is still reserved on it.
        if reason is not None and (index in on_offer or reason[1]):
            yield index, reason


def _outs(judged: Iterator[tuple[int, tuple[str, int]]]) -> tuple[Out, ...]:
    groups: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for index, reason in judged:
        groups[reason].append(index)
    return tuple(Out(Indexes.of(indexes), why, rate) for (why, rate), indexes in groups.items())


def _refuse_unreadable(pf: Pf, others: list[Pf]) -> None:
    """Raise UnfitError if readers would reject an inventory with this PF: one invalid PF would hide all others."""
    if pf.name in (earlier_pf.name for earlier_pf in others):
        raise UnfitError(f"the netdev {pf.name!r} belongs to another PF, too")
    try:
        read_inventory(dump_inventory(Inventory("", (pf,))))
    except AnnotationError as error:
        raise UnfitError(f"{error.path.removeprefix('pfs[0].')}: {error.rule}") from None
    try:
        read_inventory(dump_inventory(Inventory("", (*others, pf))))
    except AnnotationError as error:
        raise UnfitError(f"the node's inventory would be invalid with it: {error.rule}") from None


def _shown(text: str | None) -> str:
    return "unreadable" if text is None else repr(text[:40])
