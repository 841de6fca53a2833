"""Bring one VF, set and ready, into the pod: addresses asked for, the move, the name, the addresses, up, held."""

from dataclasses import dataclass, replace

from cni import ipam, netlink, netns
from cni.conf import Conf
from cni.giveback import Node, temporary_name
from cni.result import Attached
from cni.skel import IO_FAILURE, Call, CniError
from mooring.assignment import AssignedVf
from mooring.ledger import Ipam, LedgerEntry
from mooring.settings import VfSettings


@dataclass(frozen=True, slots=True)
class Taking:
    """One VF on its way: what was assigned, the PF's PCI address, its entry as last written, and what to set."""

    vf: AssignedVf
    pf_pci: str
    entry: LedgerEntry
    settings: VfSettings


def bring_in(node: Node, call: Call, conf: Conf, taking: Taking, *, first: bool) -> Attached:
    """Move a VF into the pod, name it, give it its addresses and bring it up; its entry is `held` after that."""
    entry, path = taking.entry, taking.entry.netns.path
    asked = conf.network_of(taking.vf.network).ipam
    given = ipam.Given()
    if asked is not None:
        entry = replace(entry, ipam=Ipam(entry.ifname, conf.delegated(asked), call.path))
        node.ledger.write(entry)
        args = ";".join(f"{name}={value}" for name, value in call.args.items())
        main = first and conf.previous is None
        given = ipam.add(entry.ipam, call.container, path, args, default_route=main) if entry.ipam else given
        entry = replace(entry, addresses=tuple(address.address for address in given.addresses))
        node.ledger.write(entry)
    temporary = temporary_name(entry.pci)
    try:
        netlink.move(temporary, path)
        link = netns.run_in(path, lambda: _configure(temporary, entry.ifname, given))
    except OSError as failed:
        what = f"vf {entry.pci} cannot be brought into the pod {entry.pod!r} as {entry.ifname!r}"
        raise CniError(IO_FAILURE, what, str(failed)) from failed
    node.ledger.write(replace(entry, phase="held"))
    return Attached(entry.ifname, link.mac, link.mtu, given.addresses, given.routes, entry.pci)


def _configure(temporary: str, name: str, given: ipam.Given) -> netlink.Link:
    netlink.rename(temporary, name)
    for address in given.addresses:
        netlink.add_address(name, address.address)
    netlink.set_up(name, up=True)
    for route in given.routes:
        netlink.add_route(name, route.dst, route.gateway)
    link = netlink.find(name)
    assert link is not None, f"{name} was renamed a moment ago"
    return link
