"""Read the counters of all VFs that pods hold according to the ledger, for one page of metrics.

A VF's counters are in two places. The host has those of its PF, and in shared mode those of its RDMA device. The pod's
network namespace has those of its netdev, and in exclusive mode those of its RDMA device. Each PF and each namespace is
a separate source (`bounded_reads`), so that a pod or NIC that does not answer does not delay the others. A thread that
reads a namespace enters it, checks that its cookie is the ledger entry's, and ends in it.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import structlog

from cni.kernel import netns
from cni.kernel.counters.device_counters import (
    has_rdma_device,
    named_netdev_counters,
    netdev_counters,
    numa_node,
    rdma_counters,
)
from cni.kernel.counters.sysfs_mount import own_sysfs
from cni.kernel.counters.vf_statistics import vf_statistics
from cni.plan.vf_counters import MOST_VFS, HeldVf, VfCounters, page
from cni.server.counters.bounded_reads import BoundedReads
from cni.server.metrics import Metrics
from cni.vf.node import Node
from mooring.http.recent import Recent
from mooring.nic.pf_drivers import COUNTS_FOR_VFS
from mooring.records.ledger import LedgerEntry, Netns

_log = structlog.get_logger()
# Seconds for which a page is reused: each counter may cost a firmware command, some of them under RTNL.
RECENT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of one collection's threads so far, by PCI address; late results are ignored."""

    labels: dict[str, HeldVf] = field(default_factory=dict)
    on_host: dict[str, VfCounters] = field(default_factory=dict)
    in_pod: dict[str, VfCounters] = field(default_factory=dict)

    def merge(self, pci: str) -> VfCounters:
        host, pod = self.on_host.get(pci, VfCounters()), self.in_pod.get(pci, VfCounters())
        return VfCounters(host.pf, pod.netdev, host.ports or pod.ports, host.hardware or pod.hardware)


class VfCountersCollector:
    """Collects the counters of a node's held VFs; ``node`` creates the Node for each collection."""

    def __init__(self, node: Callable[[], Node], metrics: Metrics, reads: BoundedReads | None = None) -> None:
        self._node = node
        self._metrics = metrics
        self._reads = reads or BoundedReads()
        self._recent = Recent(self._make, RECENT_S)

    def page(self) -> bytes:
        """Return the counters in Prometheus' text format, at most `RECENT_S` seconds old."""
        return self._recent.get()

    def _make(self) -> bytes:
        try:
            return self.collect().encode(errors="replace")
        except Exception:  # noqa: BLE001 - the top of a collection: the page's other metrics are still served
            _log.exception("reading counters failed unexpectedly")
            return b""

    def collect(self) -> str:
        """Read the counters of all held VFs and return the page; count VFs without counters."""
        node, results = self._node(), _Results()
        held_entries = [
            entry for entry in node.ledger.content().entries if entry.phase == "held" and entry.boot == node.boot
        ]
        entries = held_entries[:MOST_VFS]
        sources = dict(chain(_pf_sources(node, entries, results), _pod_sources(node, entries, results)))
        late_sources = self._reads.run({name: source.read for name, source in sources.items()})
        late_pcis = {pci for name in late_sources for pci in sources[name].pcis}
        counters = {entry.pci: results.merge(entry.pci) for entry in entries}
        self._metrics.vfs_without_counters(
            late=len(late_pcis),
            nothing=sum(vf_counters == VfCounters() for pci, vf_counters in counters.items() if pci not in late_pcis),
            beyond_bound=len(held_entries) - len(entries),
        )
        return page((results.labels[entry.pci], counters[entry.pci]) for entry in entries)


@dataclass(frozen=True, slots=True)
class _Source:
    """A PF or a pod's namespace: the VFs whose counters it has, and the function that reads them."""

    pcis: frozenset[str]
    read: Callable[[], None]


def _pf_sources(node: Node, entries: Iterable[LedgerEntry], results: _Results) -> Iterator[tuple[str, _Source]]:
    by_pf: defaultdict[str, dict[int, str]] = defaultdict(dict)
    with _folder(node.sysfs.root) as root:
        for entry in entries:
            vf = _labels(node, root, entry)
            results.labels[entry.pci] = vf
            by_pf[vf.pf][vf.vf] = entry.pci
    for pf, pcis in by_pf.items():
        yield f"pf {pf}", _Source(frozenset(pcis.values()), partial(_read_pf, node, pf, pcis, results))


def _labels(node: Node, root: int, entry: LedgerEntry) -> HeldVf:
    """Return a VF's labels, with its present PF and index, or those in its entry if they cannot be read."""
    try:
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
    except OSError:
        pf, vf = entry.pf, entry.vf
    network = entry.attachment.network if entry.attachment is not None else ""
    return HeldVf(entry.pod, entry.ifname, network, pf, vf, entry.pci, numa_node(root, entry.pci))


def _read_pf(node: Node, pf: str, pcis: Mapping[int, str], results: _Results) -> None:
    """Read the counters of a PF's VFs on the host: the PF's, and in shared mode the RDMA devices'."""
    counts = _counts_of_pf(node, pf, next(iter(pcis.values())))
    with _folder(node.sysfs.root) as root:
        for vf, pci in pcis.items():
            ports, hardware = rdma_counters(root, pci, node.sysfs.rdma(pci))
            results.on_host[pci] = VfCounters(pf=counts.get(vf, {}), ports=ports, hardware=hardware)


def _counts_of_pf(node: Node, pf: str, pci: str) -> Mapping[int, Mapping[str, int]]:
    """Return a PF's counters by VF index; empty on an error, so that the RDMA devices are still read."""
    try:
        return vf_statistics(pf) if node.sysfs.driver(node.sysfs.pf_of(pci)) in COUNTS_FOR_VFS else {}
    except OSError as error:
        _log.debug("cannot read the counters", pf=pf, reason=str(error))
        return {}


def _pod_sources(node: Node, entries: Iterable[LedgerEntry], results: _Results) -> Iterator[tuple[str, _Source]]:
    by_netns: defaultdict[Netns, list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        by_netns[entry.netns].append(entry)
    for space, pod_entries in by_netns.items():
        pcis = frozenset(entry.pci for entry in pod_entries)
        yield f"netns {space.cookie} {space.path}", _Source(pcis, partial(_read_pod, node, space, pod_entries, results))


def _read_pod(node: Node, space: Netns, entries: Iterable[LedgerEntry], results: _Results) -> None:
    """Read the counters of a pod's VFs in its namespace; the calling thread stays in the namespace, and must end."""
    netns.enter(space.path)
    if netns.own_cookie() != space.cookie:
        return
    # The mounted sysfs still shows the host in this thread, because a mount keeps its namespace.
    with own_sysfs() as pod_root, _folder(node.sysfs.root) as host_root:
        for entry in entries:
            results.in_pod[entry.pci] = _in_pod(node, pod_root, host_root, entry)


def _in_pod(node: Node, pod_root: int, host_root: int, entry: LedgerEntry) -> VfCounters:
    netdev = netdev_counters(pod_root, entry.pci)
    if not netdev and entry.original.name is not None and entry.original.parent is None:
        netdev = named_netdev_counters(pod_root, entry.ifname)
    if entry.rdma is None or has_rdma_device(host_root, entry.pci):
        return VfCounters(netdev=netdev)
    ports, hardware = rdma_counters(pod_root, entry.pci, node.sysfs.rdma(entry.pci))
    return VfCounters(netdev=netdev, ports=ports, hardware=hardware)


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
