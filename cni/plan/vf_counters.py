"""The counters of held VFs as a page of Prometheus: values in, text out.

A family is one metric's name. What the SR-IOV metrics exporter serves has the exporter's names and labels
(k8snetworkplumbingwg/sriov-network-metrics-exporter: collectors/sriovdev.go, sriovdev_readers.go, pod_dev_link.go), so
that its queries hold. They are untyped here: a counter's name would end in ``_total``. The labels ``pod``,
``namespace``, ``interface`` and ``network`` (the rail) are ours, on every sample.

What bounds a page: `MOST_VFS` VFs, `MOST_COUNTERS` files of one folder of the kernel's, at most `MOST_PORTS` ports of a
device. No label's value is one that a pod could choose at run time: pod and namespace are the pod record's, the
interface's name is the ledger's, and the counters' names are the driver's.
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
# The PF's counters of a VF, as `cni.kernel.counters.vf_statistics` names them.
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
# Of a netdev's statistics; the other files there are details of errors.
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
# Counters of a port that have a name of their own here, and how many of the metric's unit one of them is.
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
    """A VF that a pod holds: what its samples are labelled with. ``numa`` is empty where the host does not tell it."""

    pod: str
    interface: str
    network: str
    pf: str
    vf: int
    pci: str
    numa: str = ""


@dataclass(frozen=True, slots=True)
class VfCounters:
    """The counters of one VF: from its PF, of its netdev, and by port those of its RDMA device."""

    pf: _Counts = field(default_factory=dict, hash=False)
    netdev: _Counts = field(default_factory=dict, hash=False)
    ports: Mapping[str, _Counts] = field(default_factory=dict, hash=False)
    hardware: Mapping[str, _Counts] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its help, its type for Prometheus, and its labels beside those that all have."""

    help: str
    kind: Literal["counter", "gauge", "untyped"]
    labels: tuple[str, ...] = ()


FAMILIES: Mapping[str, Family] = {
    _DEVICE: Family("1 for each VF that a pod holds.", "gauge", ("dev_type", "container")),
    **{f"{_PF}{name}": Family(f"{name} of a VF, as its PF counts them.", "untyped") for name in FROM_PF},
    **{
        f"{_NETDEV}{name}_total": Family(f"{name} of a VF's netdev, without RDMA traffic.", "counter")
        for name in FROM_NETDEV
    },
    **{
        f"{_RDMA}{name}_total": Family(f"{name} of a VF's RDMA device ({counter}).", "counter", ("port",))
        for counter, (name, _) in _OF_TRAFFIC.items()
    },
    _PORT_COUNTER: Family("The other counters of the device's port, in the kernel's units.", "untyped",
                          ("port", "counter")),
    _HW_COUNTER: Family("The driver's counters of the device's port, in the driver's units.", "untyped",
                        ("port", "counter")),
}  # fmt: skip


def labels_of(family: Family) -> tuple[str, ...]:
    """Return all labels of a family's samples."""
    return (*_COMMON, *family.labels)


def page(vfs: Iterable[tuple[HeldVf, VfCounters]]) -> str:
    """Return the counters of VFs in Prometheus' text format 0.0.4."""
    lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for vf, counters in vfs:
        common = ",".join(f'{name}="{escaped(value)}"' for name, value in _common_labels(vf))
        for name, more, value in _samples(counters):
            lines[name].append(f"{name}{{{common}{more}}} {value}\n")
    return "".join(_head(name) + "".join(samples) for name, samples in lines.items() if samples)


def _head(name: str) -> str:
    family = FAMILIES[name]
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"


def _common_labels(vf: HeldVf) -> Iterable[tuple[str, str]]:
    namespace, _, pod = vf.pod.partition("/")
    values = (pod, namespace, vf.interface, vf.network, vf.pf, str(vf.vf), vf.pci, vf.numa)
    return zip(_COMMON, values, strict=True)


def _samples(counters: VfCounters) -> Iterator[tuple[str, str, int]]:
    """Yield the metric, the further labels as text, and the value of each sample of one VF."""
    # One sample a VF and no container's name: queries join with it by the PCI address, which must then be unique.
    yield _DEVICE, f',dev_type="{RIT_VFS}",container=""', 1
    yield from ((f"{_PF}{name}", "", counters.pf[name]) for name in FROM_PF if name in counters.pf)
    yield from (
        (f"{_NETDEV}{name}_total", "", counters.netdev[name]) for name in FROM_NETDEV if name in counters.netdev
    )
    for port, counts in counters.ports.items():
        for counter, value in counts.items():
            yield _port_sample(f',port="{escaped(port)}"', counter, value)
    for port, counts in counters.hardware.items():
        label = f',port="{escaped(port)}"'
        yield from ((_HW_COUNTER, f'{label},counter="{escaped(name)}"', value) for name, value in counts.items())


def _port_sample(port: str, counter: str, value: int) -> tuple[str, str, int]:
    if counter in _OF_TRAFFIC:
        name, unit = _OF_TRAFFIC[counter]
        return f"{_RDMA}{name}_total", port, value * unit
    return _PORT_COUNTER, f'{port},counter="{escaped(counter)}"', value


def escaped(value: str) -> str:
    """Return a label's value as the text format has it between its quotation marks."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
