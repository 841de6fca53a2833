"""Look at a pod's VFs as they are now, and answer CHECK with what is not as it was made."""

from collections.abc import Callable

from cni import check, ipam, netlink, netns, rdma
from cni.conf import Conf
from cni.node import Node
from cni.plan import chosen, entitled
from cni.skel import BAD_CONFIG, DRIFTED, Call, CniError
from mooring.ledger import LedgerEntry


def check_pod(node: Node, call: Call, conf: Conf) -> None:
    """Raise CniError 103 that names every difference; a pod without VFs in this call has none."""
    if not conf.checks:
        return
    uid = call.args.get("K8S_POD_UID", "")
    record = entitled(call, conf, node.ledger.pod(uid) if uid else None)
    vfs = chosen(record, conf) if record is not None else ()
    of_network = (entry for entry in node.ledger.entries() if entry.container == call.container)
    entries = {
        entry.pci: entry
        for entry in of_network
        if conf.network is None or entry.attachment is None or entry.attachment.network == conf.network
    }
    if not vfs and not entries:
        return
    if conf.previous is None:
        raise CniError(BAD_CONFIG, "configuration field 'prevResult' is missing: CHECK compares with it")
    texts = check.from_record(vfs, entries, call.container)
    for entry in entries.values():
        texts += _check_one(node, call, conf, entry)
    if texts:
        raise CniError(DRIFTED, f"container {call.container!r} is not as it was made", "; ".join(texts))


def _check_one(node: Node, call: Call, conf: Conf, entry: LedgerEntry) -> list[str]:
    listed, lacking = check.from_result(entry, conf.previous or {}, call.netns or "")
    network = conf.network_of(entry.attachment.network if entry.attachment is not None else "")
    texts = [*lacking, *check.from_kernel(entry, look(node, entry), network.mtu, listed)]
    if entry.ipam is not None:
        try:
            ipam.check(entry.ipam, entry.container, call.netns or "", conf.previous or {})
        except CniError as failed:
            texts.append(f"vf {entry.pci}: {failed}")
    return texts


def differences_of(entry: LedgerEntry, found: check.Found) -> tuple[str, ...]:
    """Return where a VF is not as its entry says; the MTU that a network gives is in its configuration only."""
    mtu = found.interface.mtu if found.interface is not None else None
    return tuple(check.from_kernel(entry, found, mtu, {}))


def look(node: Node, entry: LedgerEntry) -> check.Found:
    """Return what the kernel has of one VF: in its namespace, and on its PF."""
    try:
        settings = node.port.read(entry.pf, entry.vf)
    except OSError:
        settings = None
    device = node.sysfs.rdma(entry.pci) if entry.rdma is not None and rdma.mode() == "exclusive" else None
    if not netns.is_same(entry.netns.path, entry.netns.cookie):
        return check.Found(reachable=False, settings=settings)
    try:
        interface, has_device = netns.run_in(entry.netns.path, _inside(entry.ifname, device))
    except netns.NetnsGoneError:
        return check.Found(reachable=False, settings=settings)
    return check.Found(True, interface, settings, has_device if entry.rdma is not None and device else None)


def _inside(ifname: str, device: str | None) -> Callable[[], tuple[check.Interface | None, bool]]:
    def seen() -> tuple[check.Interface | None, bool]:
        link = netlink.find(ifname)
        has_device = device is not None and device in rdma.devices()
        if link is None:
            return None, has_device
        return check.Interface(link.mac, link.mtu, link.up, netlink.addresses(link.index)), has_device

    return seen
