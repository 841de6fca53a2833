"""Format the counters of held VFs as a Prometheus page: values in, text out.

A family is one metric. Metrics that the SR-IOV metrics exporter also serves have its names and labels, so that queries
for it still work (k8snetworkplumbingwg/sriov-network-metrics-exporter: collectors/sriovdev.go, sriovdev_readers.go,
pod_dev_link.go). They are untyped here, because the name of a counter would have to end in ``_total``. Mooring adds the
labels ``pod``, ``namespace``, ``interface`` and ``network`` (the rail) to every sample.

The size of a page is limited: `MOST_VFS` VFs, `MOST_COUNTERS` files of one folder, `MOST_PORTS` ports of a device. A
pod cannot choose the value of any label at run time: pod and namespace come from the pod record, the interface's name
from the ledger, and the counters' names from the driver.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mooring.names import RIT_VFS

MOST_VFS, MOST_COUNTERS, MOST_PORTS = 512, 64, 4
# Octets of one unit of port_xmit_data and port_rcv_data (the kernel's Documentation/ABI/stable/sysfs-class-infiniband);
# mlx5 divides what its firmware counts (pma_cnt_ext_assign in drivers/infiniband/hw/mlx5/mad.c).
_OCTETS = 4
_COMMON = ("pod", "namespace", "interface", "network", "pf", "vf", "pciAddr", "numa_node")
# The PF's counters of a VF, by the names of `cni.kernel.counters.vf_statistics`.
FROM_PF = (
    "rx_bytes",
    "tx_bytes",
    "rx_packets",
    "tx_packets",
    "rx_dropped",
    "tx_dropped",
    "rx_broadcast",
    "rx_multicast",
)
# Statistics of a netdev; the other files in sysfs give details of errors.
FROM_NETDEV = (
    "rx_bytes",
    "tx_bytes",
    "rx_packets",
    "tx_packets",
    "rx_dropped",
    "tx_dropped",
    "rx_errors",
    "tx_errors",
)
# Port counters that have metrics of their own: the metric's name, and its units in one unit of the counter.
_OF_TRAFFIC = {
    "port_rcv_data": ("rx_bytes", _OCTETS),
    "port_xmit_data": ("tx_bytes", _OCTETS),
    "port_rcv_packets": ("rx_packets", 1),
    "port_xmit_packets": ("tx_packets", 1),
}
_PF, _NETDEV, _RDMA = "sriov_vf_", "mooring_vf_netdev_", "mooring_vf_rdma_"
_DEVICE = "sriov_kubepoddevice"
_PORT_COUNTER, _HW_COUNTER = f"{_RDMA}port_counter", f"{_RDMA}hw_counter"
_Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HeldVf:
    """The labels for the samples of a VF that a pod holds; ``numa`` is empty if the host does not report it."""

    pod: str
    interface: str
    network: str
    pf: str
    vf: int
    pci: str
    numa: str = ""


@dataclass(frozen=True, slots=True)
class VfCounters:
    """The counters of one VF: from its PF, its netdev, and each port of its RDMA device."""

    pf: _Counts = field(default_factory=dict, hash=False)
    netdev: _Counts = field(default_factory=dict, hash=False)
    ports: Mapping[str, _Counts] = field(default_factory=dict, hash=False)
    hardware: Mapping[str, _Counts] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its help text, its Prometheus type, and its labels beside the common ones."""

    help: str
    kind: Literal["counter", "gauge", "untyped"]
    labels: tuple[str, ...] = ()


FAMILIES: Mapping[str, Family] = {
    _DEVICE: Family("1 for each VF that a pod holds.", "gauge", ("dev_type", "container")),
    **{f"{_PF}{name}": Family(f"{name} of a VF, counted by its PF.", "untyped") for name in FROM_PF},
    **{
        f"{_NETDEV}{name}_total": Family(f"{name} of a VF's netdev, without RDMA traffic.", "counter")
        for name in FROM_NETDEV
    },
    **{
        f"{_RDMA}{name}_total": Family(f"{name} of a VF's RDMA device ({counter}).", "counter", ("port",))
        for counter, (name, _) in _OF_TRAFFIC.items()
    },
    _PORT_COUNTER: Family("Other counters of the RDMA device's port, in the kernel's units.", "untyped",
                          ("port", "counter")),
    _HW_COUNTER: Family("Driver counters of the RDMA device's port, in the driver's units.", "untyped",
                        ("port", "counter")),
}  # fmt: skip


def labels_of(family: Family) -> tuple[str, ...]:
    """Return all labels of a family's samples."""
    return (*_COMMON, *family.labels)


def page(vfs: Iterable[tuple[HeldVf, VfCounters]]) -> str:
    """Return the counters of VFs in Prometheus' text format 0.0.4."""
    lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for vf, counters in vfs:
        common = ",".join(f'{name}="{escape(value)}"' for name, value in _common_labels(vf))
        for name, labels, value in _samples(counters):
            lines[name].append(f"{name}{{{common}{labels}}} {value}\n")
    return "".join(_head(name) + "".join(samples) for name, samples in lines.items() if samples)


def _head(name: str) -> str:
    family = FAMILIES[name]
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"


def _common_labels(vf: HeldVf) -> Iterable[tuple[str, str]]:
    namespace, _, pod = vf.pod.partition("/")
    values = (pod, namespace, vf.interface, vf.network, vf.pf, str(vf.vf), vf.pci, vf.numa)
    return zip(_COMMON, values, strict=True)


def _samples(counters: VfCounters) -> Iterator[tuple[str, str, int]]:
    """Yield metric, additional labels as text, and value for each sample of one VF."""
    # One sample for each VF, without a container name: queries join by the PCI address, which must be unique.
    yield _DEVICE, f',dev_type="{RIT_VFS}",container=""', 1
    yield from ((f"{_PF}{name}", "", counters.pf[name]) for name in FROM_PF if name in counters.pf)
    yield from (
        (f"{_NETDEV}{name}_total", "", counters.netdev[name]) for name in FROM_NETDEV if name in counters.netdev
    )
    for port, counts in counters.ports.items():
        for counter, value in counts.items():
            yield _port_sample(f',port="{escape(port)}"', counter, value)
    for port, counts in counters.hardware.items():
        label = f',port="{escape(port)}"'
        yield from ((_HW_COUNTER, f'{label},counter="{escape(name)}"', value) for name, value in counts.items())


def _port_sample(port: str, counter: str, value: int) -> tuple[str, str, int]:
    if counter in _OF_TRAFFIC:
        name, unit = _OF_TRAFFIC[counter]
        return f"{_RDMA}{name}_total", port, value * unit
    return _PORT_COUNTER, f'{port},counter="{escape(counter)}"', value


def escape(value: str) -> str:
    """Escape the value of a label for the Prometheus text format."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
