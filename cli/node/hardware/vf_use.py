"""Read who uses the VFs of a PF, and the state of one: files, `ip` and `rdma`; nothing is changed."""

from collections.abc import Mapping
from typing import Any

from cli.node.hardware.commands import CommandError, run_json, text_of
from cli.node.hardware.host import Target
from cli.node.hardware.plan.free_vf import VfUse
from cli.node.hardware.plan.trial import VfState
from mooring.errors import RecordError
from mooring.files import ForeignFileError
from mooring.folders import read_folder
from mooring.nic.function_devices import own_netdevs, own_verbs
from mooring.records import ledger
from mooring.records.pod_record import FOLDER, IS_NAME, read_pod_record

_LINK_LOCAL = "link"
_MAC_CHARS, _IPOIB_QP_CHARS = 17, 12


def uses(target: Target) -> list[VfUse]:
    """Return every VF on offer with what is known of its use; raise CommandError if that cannot be read."""
    entries = {name.removesuffix(".json") for name, _ in read_folder(target.state / ledger.FOLDER, ledger.IS_NAME)}
    records = _recorded(target)
    links = _links()
    return [_use(target, index, entries, records, links) for index in target.pf.vfs]


def state_of(target: Target, index: int) -> VfState:
    """Return the state of a VF that is on the host."""
    pci = target.pf.vf_pci(index)
    netdev = netdev_of(target, pci)
    link = _links().get(netdev or "", {})
    return VfState(
        driver=driver_of(target, pci),
        rdma=rdma_of(target, pci),
        netdev=netdev,
        altnames=tuple(sorted(link.get("altnames", ()))),
        mtu=link.get("mtu"),
        address=_without_queue_pair(link.get("address")),
        up="UP" in link.get("flags", ()),
        settings=target.settings.read(target.pf.name, index),
    )


def _without_queue_pair(address: str | None) -> str | None:
    """Return an address without the number of the queue pair with which IPoIB's begins (ipoib_dev_init_default).

    It changes whenever the driver is bound.
    """
    return address[_IPOIB_QP_CHARS:] if address is not None and len(address) > _MAC_CHARS else address


def netdev_of(target: Target, pci: str) -> str | None:
    """Return the name of a VF's own netdev in this network namespace."""
    return next(iter(own_netdevs(target.device(pci))), None)


def rdma_of(target: Target, pci: str) -> str | None:
    """Return the name of a VF's own RDMA device, in whichever namespace it is."""
    function = target.device(pci)
    return next((text_of(function / "infiniband_verbs" / name / "ibdev") for name in own_verbs(function)), None)


def driver_of(target: Target, pci: str) -> str | None:
    try:
        return (target.device(pci) / "driver").readlink().name
    except OSError:
        return None


def _recorded(target: Target) -> set[str]:
    """Return the VFs that pod records name; raise CommandError for a record that cannot be read."""
    vfs: set[str] = set()
    for name, text in read_folder(target.state / FOLDER, IS_NAME):
        try:
            if isinstance(text, OSError):
                raise text
            record = read_pod_record(text, f"{FOLDER}/{name}")
        except ForeignFileError:
            continue
        except (RecordError, OSError) as unreadable:
            raise CommandError(f"pod record {name}: {unreadable}") from unreadable
        vfs |= {vf.pci for vf in record.assignment.vfs}
    return vfs


def _links() -> Mapping[str, Mapping[str, Any]]:
    """Return every link of this namespace by name, with its addresses and what is above it."""
    links: dict[str, dict[str, Any]] = {link["ifname"]: {**link} for link in run_json(("ip", "-j", "link", "show"))}
    for each in run_json(("ip", "-j", "address", "show")):
        links.setdefault(each["ifname"], {})["addr_info"] = each.get("addr_info", [])
    for link in list(links.values()):
        below = link.get("link")
        if below in links:
            links[below].setdefault("above", []).append(link["ifname"])
        if "master" in link:
            link.setdefault("above", []).append(link["master"])
    return links


def _use(
    target: Target, index: int, entries: set[str], records: set[str], links: Mapping[str, Mapping[str, Any]]
) -> VfUse:
    pci = target.pf.vf_pci(index)
    netdev = netdev_of(target, pci)
    link = links.get(netdev or "", {})
    addresses = [address for address in link.get("addr_info", ()) if address.get("scope") != _LINK_LOCAL]
    return VfUse(
        index=index,
        pci=pci,
        driver=driver_of(target, pci),
        netdev=netdev,
        entered=pci in entries,
        recorded=pci in records,
        up="UP" in link.get("flags", ()),
        addresses=tuple(str(address.get("local")) for address in addresses),
        upper=tuple(link.get("above", ())),
        out=next((entry.why for entry in target.pf.out if index in entry.vfs), None),
        users=_users(rdma_of(target, pci)),
    )


def _users(device: str | None) -> int | None:
    """Return how many contexts processes have on an RDMA device; None if the kernel or driver does not tell."""
    if device is None:
        return 0
    try:
        output = run_json(("rdma", "-j", "resource", "show", device))
    except CommandError:
        return None
    contexts = [context["ctx"] for context in output or () if context.get("ifname") == device and "ctx" in context]
    return contexts[0] if contexts else None
