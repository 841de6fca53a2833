"""Move VFs into the pod while IPAM assigns their addresses; then configure their links and bring them up."""

import errno
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cni.kernel import ipoib, netlink, netns, pod_link, rdma
from cni.kernel.wait import RENAME_ERRNOS, RENAME_S, retry
from cni.plan import addressing
from cni.plan.addressing import AddressPlan, InterfaceConfig
from cni.spec.conf import Conf
from cni.spec.result import AttachedVf
from cni.spec.skel import IO_FAILURE, NIC_REFUSAL, Call, CniError
from cni.vf import ipam
from cni.vf.node import Node, netdev_index, temporary_name
from mooring.annotations.assignment import AssignedVf
from mooring.nic.refusals import symbol
from mooring.nic.settings import VfSettings
from mooring.records.ledger import Ipam, LedgerEntry
from mooring.records.pod_record import PodRecord


@dataclass(frozen=True, slots=True)
class PendingAttachment:
    """One VF during an ADD: its assignment, its PF's PCI address, its present ledger entry, and its settings.

    ``guid_mac`` is the MAC from which it gets its missing node GUID, None if it gets none. ``gives_guid``: ``settings``
    have a GUID for an InfiniBand VF that lacks one and whose pod requests none.
    """

    vf: AssignedVf
    pf_pci: str
    entry: LedgerEntry
    settings: VfSettings
    guid_mac: str | None = None
    gives_guid: bool = False


def ipam_of(call: Call, conf: Conf, vf: AssignedVf, ifname: str) -> Ipam | None:
    """Return the IPAM call for a VF as its ledger entry stores it; None for a VF without addresses."""
    ipam_conf = conf.network_of(vf.network).ipam
    return Ipam(ifname, conf.ipam_conf(ipam_conf), call.path) if ipam_conf is not None else None


def move_all_in(
    node: Node, call: Call, conf: Conf, record: PodRecord, all_pending: Sequence[PendingAttachment]
) -> list[AttachedVf]:
    """Move all VFs into the pod, one by one, while IPAM assigns addresses; then configure their links.

    The kernel moves one link at a time for all callers (RTNL), which takes about 20 ms; a plugin takes 5 ms.
    """
    if not all_pending:
        return []
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: [_request_addresses(node, call, pending) for pending in all_pending])
        for pending in all_pending:
            _move_in(node, pending.entry)
            _set_mtu(conf, pending)
        results = future.result()
    configs = [
        InterfaceConfig(
            pending.entry.ifname, result.addresses, result.routes, conf.network_of(pending.vf.network).routes
        )
        for pending, result in zip(all_pending, results, strict=True)
    ]
    pod_addresses = _other_addresses(node, call, record, all_pending)
    plans = addressing.plan(configs, conf.previous, pod_addresses, policy=conf.policy_routing)
    entries = [_with_addresses(pending, result) for pending, result in zip(all_pending, results, strict=True)]
    attached_vfs = netns.run_in(
        all_pending[0].entry.netns.path,
        lambda: [_settle(entry, plan, result) for entry, plan, result in zip(entries, plans, results, strict=True)],
    )
    node.ledger.write(*(replace(entry, phase="held") for entry in entries))
    addresses = {vf.name: vf.addresses for vf in attached_vfs if vf.addresses}
    if addresses:
        netns.start_in(all_pending[0].entry.netns.path, lambda: pod_link.announce(addresses))
    return attached_vfs


def _request_addresses(node: Node, call: Call, pending: PendingAttachment) -> ipam.IpamResult:
    """Call the IPAM plugin in the VF's entry, and record the addresses in the entry."""
    entry = pending.entry
    if entry.ipam is None:
        return ipam.IpamResult()
    args = ";".join(f"{name}={value}" for name, value in call.args.items())
    ipam_call = ipam.IpamCall(entry.container, entry.netns.path, args, node.run, entry.pci, call.caller)
    result = ipam.add(entry.ipam, ipam_call)
    node.ledger.write(_with_addresses(pending, result))
    return result


def _with_addresses(pending: PendingAttachment, result: ipam.IpamResult) -> LedgerEntry:
    return replace(pending.entry, addresses=tuple(address.address for address in result.addresses))


def _other_addresses(node: Node, call: Call, record: PodRecord, all_pending: Sequence[PendingAttachment]) -> list[str]:
    """Return the addresses of the pod's VFs from other calls; Multus makes one call for each network."""
    own_pcis = {pending.vf.pci for pending in all_pending}
    entries = (node.ledger.read(vf.pci) for vf in record.assignment.vfs if vf.pci not in own_pcis)
    siblings = (entry for entry in entries if entry is not None and entry.container == call.container)
    return [address for entry in siblings for address in entry.addresses]


def has_netdev(pending: PendingAttachment) -> bool:
    return pending.entry.original.name is not None


def move_device_in(node: Node, entry: LedgerEntry) -> None:
    """Move only the RDMA device of a VF; do nothing in shared mode, where every namespace has it.

    The VF's netdev stays on the host, down. IPoIB creates a new one when the device has moved.
    """
    with _wrap_errors(entry):
        if _move_rdma(node, entry) and entry.original.name is not None:
            ipoib.keep_on_host(node.sysfs, entry.pci, temporary_name(entry.pci), entry.netns.path)
    node.ledger.write(replace(entry, phase="held"))


def _move_rdma(node: Node, entry: LedgerEntry) -> bool:
    """Move a VF's RDMA device into the pod in exclusive mode; return whether it was moved."""
    if entry.rdma is None or rdma.mode() != "exclusive":
        return False

    def act() -> None:
        device = rdma.device_of(node.sysfs, entry.pci)
        if device is None:
            raise OSError(errno.ENODEV, f"no rdma device {entry.rdma!r} in this network namespace")
        rdma.move(device.index, entry.netns.path)

    retry(act, RENAME_ERRNOS, RENAME_S)
    return True


def _move_in(node: Node, entry: LedgerEntry) -> None:
    """Move a VF's netdev into the pod under its new name, then its RDMA device."""
    with _wrap_errors(entry):
        index = retry(lambda: _on_host(node, entry), (errno.ENODEV,), RENAME_S)
        netlink.move(index, entry.netns.path, entry.ifname)
        if _move_rdma(node, entry):
            ipoib.follow(node.sysfs, entry.pci, entry.ifname, entry.netns.path)


def _on_host(node: Node, entry: LedgerEntry) -> int:
    index = netdev_index(node, entry.pci, entry.original.parent)
    if index is None:
        raise OSError(errno.ENODEV, f"vf {entry.pci} has no network interface on the host")
    return index


def _set_mtu(conf: Conf, pending: PendingAttachment) -> None:
    """Set the network's MTU in the pod; a new IPoIB netdev has the default MTU after its RDMA device moved."""
    entry, mtu = pending.entry, conf.network_of(pending.vf.network).mtu
    if mtu is None:
        return
    try:
        netns.run_in(entry.netns.path, lambda: _set_mtu_of(entry.ifname, mtu))
    except OSError as error:
        text = f"vf {entry.vf} of pf {entry.pf!r} refuses mtu {mtu}"
        raise CniError(NIC_REFUSAL, text, symbol(error)) from error


def _set_mtu_of(name: str, mtu: int) -> None:
    index = netlink.index_of(name)
    if index is None:
        raise OSError(errno.ENODEV, f"no interface {name!r}")
    netlink.set_mtu(index, mtu)


def _settle(entry: LedgerEntry, plan: AddressPlan, result: ipam.IpamResult) -> AttachedVf:
    """Configure a VF's link and return it for the result; the calling thread is in the pod's namespace."""
    with _wrap_errors(entry):
        link = pod_link.configure(entry.ifname, plan)
        if entry.original.parent not in (None, link.parent):
            raise OSError(errno.ENODEV, f"interface {entry.ifname!r} is another link")
    return AttachedVf(entry.ifname, link.mac, link.mtu, plan.addresses, plan.routes, entry.pci, result.dns)


@contextmanager
def _wrap_errors(entry: LedgerEntry) -> Iterator[None]:
    """Turn OSErrors into CniError 5, which names the VF and the pod."""
    try:
        yield
    except OSError as error:
        text = f"vf {entry.pci} cannot be moved into pod {entry.pod!r} as interface {entry.ifname!r}"
        raise CniError(IO_FAILURE, text, str(error)) from error
