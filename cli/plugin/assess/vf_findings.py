"""Findings about VFs of captured nodes: lost, orphaned, with settings left, used by the host, beyond the line. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advertiser.formats.use_record import NodeUse
from advertiser.inventory import port
from advertiser.inventory.facts import PciFunction, Vf
from cli.plugin.assess.findings import Evidence, Finding
from cli.plugin.assess.holders import MOVED, Holding
from cli.plugin.assess.snapshot import ATTACHMENTS, CLAIMS, SLICES, NodeCapture, Snapshot, at, items, key_of, unix_time
from mooring.parsing import decode

# Fields of a VF's settings that a pod can leave, and the value in a driver that was just loaded; None: it differs.
_LEFT: Mapping[str, object] = {
    "vlan": 0,
    "qos": 0,
    "min_tx_rate": 0,
    "max_tx_rate": 0,
    "trust": False,
    "spoofchk": None,
    "link_state": None,
}
# With fewer free VFs on a PF, the most frequent value says nothing about what is usual there.
_LEAST_USUAL = 3


@dataclass(frozen=True, slots=True)
class _Node:
    """One captured node, with what its pods have by PCI address."""

    name: str
    capture: NodeCapture
    held: Mapping[str, Sequence[Holding]]

    def pf_name(self, function: PciFunction) -> str:
        netdev = port.main_netdev(function.netdevs)
        return netdev.name if netdev is not None else function.address

    def uses_by_host(self, pci: str) -> str:
        use = self.capture.use
        return use.host.get(pci, "") if use is not None else ""

    def is_held(self, pci: str) -> bool:
        ledger = self.capture.host.ledger
        of_kubelet = (self.capture.use.devices if self.capture.use is not None else None) or ()
        return pci in self.held or pci in ledger or any(pci in one.pci for one in of_kubelet)


def find(snapshot: Snapshot, held: Mapping[str, Sequence[Holding]]) -> Iterator[Finding]:
    """Yield the findings of all captured nodes."""
    running = _running_since(snapshot)
    are_pods_known = _are_pods_known(snapshot)
    for name, capture in snapshot.captures.items():
        by_pci: dict[str, list[Holding]] = {}
        for one in held.get(name, ()):
            by_pci.setdefault(one.pci, []).append(one)
        node = _Node(name, capture, by_pci)
        for function in capture.host.functions:
            if capture.use is not None:
                yield from _lost(node, function, capture.use, running)
                if are_pods_known:
                    yield from _orphaned(node, function, capture.use)
                yield from _left(node, function, capture.use)
                yield from _of_host(node, function, capture.use)
                yield from _beyond_line(node, function, capture.use)


def _running_since(snapshot: Snapshot) -> Mapping[str, float]:
    """Return since when each running pod has its network, by key."""
    found = {}
    for pod in snapshot.pods():
        if at(pod, "status", "phase") == "Running" and at(pod, "metadata", "deletionTimestamp") is None:
            found[key_of(pod)] = unix_time(at(pod, "status", "startTime")) or 0.0
    return found


def _are_pods_known(snapshot: Snapshot) -> bool:
    """Return whether every pod with a VF can be found: the CNI plugin host-device leaves no trace."""
    if any(path in snapshot.lists and snapshot.lists[path] is None for path in (*CLAIMS, *SLICES, ATTACHMENTS)):
        return False
    return not any(_is_of_host_device(at(one, "spec", "config")) for one in snapshot.all(ATTACHMENTS))


def _is_of_host_device(text: object) -> bool:
    try:
        config = decode(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return any(at(one, "type") == "host-device" for one in (config, *items(config, "plugins")))


def _path(function: PciFunction, index: int, rest: str = "") -> str:
    return f"/sys/bus/pci/devices/{function.address}/virtfn{index}{rest}"


def is_away(vf: Vf) -> bool:
    """Return whether a VF's devices are in another network namespace."""
    if not vf.exists or vf.driver is None or vf.driver.startswith("vfio"):
        return False
    return (not vf.netdev and not vf.lacks_netdev) or (vf.lacks_netdev and vf.rdma and not vf.rdma_here)


def _lost(node: _Node, function: PciFunction, use: NodeUse, running: Mapping[str, float]) -> Iterator[Finding]:
    for index, vf in sorted(function.vfs.items()):
        for one in node.held.get(vf.address or "", ()):
            started = running.get(one.pod)
            # A pod that started after the capture has taken its VFs since.
            if one.source not in MOVED or started is None or started >= use.taken_at:
                continue
            if not vf.exists:
                seen = "the VF is gone"
            elif vf.driver is None:
                seen = "the VF has no driver"
            elif vf.netdev:
                seen = "its netdev is on the host"
            else:
                continue
            yield Finding(
                "vf-lost",
                f"node/{node.name}",
                f"pod {one.pod} has VF {vf.address} of {node.pf_name(function)} by its {one.source}, but {seen}",
                (
                    Evidence(f"pod/{one.pod}", f"metadata.annotations ({one.source})", f"{one.name} {vf.address}"),
                    Evidence(f"node/{node.name}", _path(function, index, "/net"), seen),
                ),
            )


def _orphaned(node: _Node, function: PciFunction, use: NodeUse) -> Iterator[Finding]:
    if use.devices is None:
        # Without the kubelet's devices a VF that is away may be a pod's that no annotation names.
        return
    for index, vf in sorted(function.vfs.items()):
        if vf.address is not None and is_away(vf) and not node.is_held(vf.address):
            yield Finding(
                "vf-orphaned",
                f"node/{node.name}",
                f"VF {vf.address} of {node.pf_name(function)} is not on the host, and no pod has it",
                (
                    Evidence(f"node/{node.name}", _path(function, index, "/net"), "empty"),
                    Evidence(f"node/{node.name}", "kubelet_internal_checkpoint: PodDeviceEntries", "no entry"),
                ),
            )


def _free(node: _Node, function: PciFunction, use: NodeUse) -> dict[int, str]:
    """Return the PCI addresses of VFs that neither a pod nor the host has, by index."""
    if use.devices is None:
        return {}
    return {
        index: vf.address
        for index, vf in sorted(function.vfs.items())
        if vf.address is not None
        and not is_away(vf)
        and not node.is_held(vf.address)
        and not use.host.get(vf.address)
        and vf.address in use.settings
    }


def _left(node: _Node, function: PciFunction, use: NodeUse) -> Iterator[Finding]:
    free = _free(node, function, use)
    for name, default in _LEFT.items():
        values = {index: getattr(use.settings[pci], name) for index, pci in free.items()}
        usual = _usual(values.values(), default)
        for index, value in values.items():
            if value is not None and usual is not None and value != usual:
                yield Finding(
                    "settings-left",
                    f"node/{node.name}",
                    f"VF {free[index]} of {node.pf_name(function)} is free and has {name} {value}, the others {usual}",
                    (
                        Evidence(
                            f"node/{node.name}", f"ip link show {node.pf_name(function)}: vf {index} {name}", str(value)
                        ),
                    ),
                )


def _usual(values: Iterable[object], default: object) -> object:
    """Return the value of more than half of the VFs; the default if these are too few to tell."""
    counts = Counter(value for value in values if value is not None)
    if counts.total() < _LEAST_USUAL:
        return default
    value, count = counts.most_common(1)[0]
    return value if 2 * count > counts.total() else default


def _of_host(node: _Node, function: PciFunction, use: NodeUse) -> Iterator[Finding]:
    for _, vf in sorted(function.vfs.items()):
        user = node.uses_by_host(vf.address or "")
        # The VF of a pod may look like one of the host: a pod in the host's network uses it there.
        if not user or vf.address is None or node.is_held(vf.address):
            continue
        pools = [name for name, pci in (use.pools or {}).items() if vf.address in pci]
        if use.pools is not None and not pools:
            continue
        offered = f"{', '.join(pools)} offers it" if pools else "which resources have it is not known"
        yield Finding(
            "vf-used-by-host",
            f"node/{node.name}",
            f"VF {vf.address} of {node.pf_name(function)}: {user}, and {offered}",
            (
                Evidence(f"node/{node.name}", "rtnetlink and RDMA contexts of the host", user),
                Evidence(f"node/{node.name}", "kubelet_internal_checkpoint: RegisteredDevices", offered),
            ),
        )


def _beyond_line(node: _Node, function: PciFunction, use: NodeUse) -> Iterator[Finding]:
    at_port = port.read_port(port.main_netdev(function.netdevs), function.rdma)
    rates = {
        vf.address: rate
        for vf in function.vfs.values()
        if vf.address is not None and vf.address in use.settings and (rate := use.settings[vf.address].min_tx_rate)
    }
    total = sum(rates.values())
    if at_port is not None and at_port.mbps and total > at_port.mbps:
        name = node.pf_name(function)
        yield Finding(
            "pf-oversubscribed",
            f"node/{node.name}",
            f"{name} has {at_port.mbps} Mb/s, and its {len(rates)} VFs with a minimum rate have {total} Mb/s together",
            (
                Evidence(f"node/{node.name}", f"ip link show {name}: min_tx_rate", str(total)),
                Evidence(f"node/{node.name}", f"/sys/class/net/{name}/speed", str(at_port.mbps)),
            ),
        )
