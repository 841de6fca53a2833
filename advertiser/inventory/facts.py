"""Types for a host's SR-IOV devices as read from sysfs: the text of each file, None if it cannot be read.

Sources: Documentation/ABI/testing/sysfs-bus-pci and sysfs-class-net, ABI/stable/sysfs-class-infiniband in the kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mooring.nic import node_guid
from mooring.nic.vf_users import NO_FACTS, HostFacts, VfDevices
from mooring.records.hardware_result import HardwareResult
from mooring.records.ledger import LedgerEntry
from mooring.records.node_check import NodeCheck
from mooring.records.node_install import NodeInstall
from mooring.records.shim_bypass import ShimBypass
from mooring.records.vf_faults import VfFaults
from mooring.records.without_devices import WithoutDevices

Text = str | None
# DEVLINK_ESWITCH_MODE_* in include/uapi/linux/devlink.h.
EswitchMode = Literal["legacy", "switchdev"]
# A VF that a pod holds: the pod's uid, and PF, VF index and PCI address as in its assignment.
AssignedVfKey = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class Netdev:
    """A netdev of a PF. ``bonded``: it is a port of a bond; ``child``: it is an IPoIB child of another netdev."""

    name: str
    type: Text = None
    speed: Text = None
    operstate: Text = None
    carrier: Text = None
    dev_port: Text = None
    phys_port_name: Text = None
    phys_switch_id: Text = None
    bonded: bool = False
    child: bool = False


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port of an RDMA device; ``rate`` reads ``100 Gb/sec (4X EDR)``, ``state`` reads ``4: ACTIVE``."""

    rate: Text = None
    state: Text = None
    link_layer: Text = None


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device of a PF; ``sys_image_guid`` and ``node_guid`` read ``fc4c:ea03:00f9:4230``."""

    name: str
    ports: tuple[RdmaPort, ...] = ()
    sys_image_guid: Text = None
    node_guid: Text = None


@dataclass(frozen=True, slots=True)
class Vf:
    """A VF behind its PF's link ``virtfnN``; ``address`` is None if that is not a link to a PCI function.

    ``exists``: the PCI function exists. ``netdev``: it has a netdev in this namespace; ``lacks_netdev``: in no
    namespace. ``rdma``: it has an RDMA device in any namespace; ``rdma_here``: in this one. ``node_guid`` is that
    device's, None if it is not in this namespace. ``netdevs`` (name and index) and ``rdma_names`` are in this
    namespace.
    """

    address: str | None
    exists: bool = False
    driver: str | None = None
    netdev: bool = False
    rdma: bool = False
    rdma_here: bool = False
    lacks_netdev: bool = False
    node_guid: Text = None
    netdevs: tuple[tuple[str, int], ...] = ()
    rdma_names: tuple[str, ...] = ()

    @property
    def devices(self) -> VfDevices:
        """Return the devices by which `mooring.nic.vf_users` decides who uses the VF."""
        is_away = self.rdma and not self.rdma_here
        return VfDevices(self.address or "", self.driver, self.netdevs, self.rdma_names, is_away)


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A NIC's PCI function that is not a VF of this machine; ``path`` are the PCI bridges above it, from the root.

    ``sriov``: sysfs has SR-IOV's files for it. ``vf_settings``: its driver shows the settings of its VFs in sysfs.
    """

    address: str
    sriov: bool = True
    totalvfs: Text = None
    numvfs: Text = None
    offset: Text = None
    stride: Text = None
    driver: str | None = None
    vendor: Text = None
    device: Text = None
    numa_node: Text = None
    path: tuple[str, ...] = ()
    netdevs: tuple[Netdev, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    vfs: Mapping[int, Vf] = field(default_factory=dict, hash=False)
    vf_settings: bool = False

    def lacks_guid(self, vf: Vf) -> bool:
        """Return whether a VF has no node GUID; false if that of the PF reads zero too, and so nothing is known."""
        guid = self.rdma[0].node_guid if self.rdma else None
        return node_guid.is_missing(vf.node_guid) and not node_guid.is_missing(guid)


@dataclass(frozen=True, slots=True)
class Host:
    """A whole host at one moment.

    ``ledger`` has the entries by PCI address, None for one that cannot be read. ``unsettled`` are the addresses whose
    entry changed during the read. ``altnames`` are by PF netdev. ``preparing`` are the PCI addresses of the PFs that
    `init` is preparing. ``eswitch`` are the modes of the PFs' switches by PCI address, as far as devlink reports them.
    ``without_devices`` are the containers that lack devices, as the CRI shim reports. ``rdma_exclusive``: each RDMA
    device is in one network namespace. ``node_check`` is the report of `mooring-node check`, ``shim_bypass`` describes
    the bypass of a failed shim, ``node_install`` is how far the cluster's installation is, ``vf_faults``
    is the CNI server's report, ``runtime_handlers`` are those whose pods the CRI shim gives VFs; each is None if it
    does not exist.
    ``uses`` are the facts that decide who uses a VF. ``guid_failures`` says which VFs could not be given a GUID, and
    why, by PCI address.
    ``kernel`` is its release. ``hardware_results`` are the results of hardware tests, by the PF's PCI address.
    """

    boot: str
    functions: tuple[PciFunction, ...]
    ledger: Mapping[str, LedgerEntry | None] = field(default_factory=dict, hash=False)
    unsettled: frozenset[str] = frozenset()
    altnames: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    programs: Mapping[str, str] = field(default_factory=dict, hash=False)
    preparing: frozenset[str] = frozenset()
    eswitch: Mapping[str, EswitchMode] = field(default_factory=dict, hash=False)
    without_devices: frozenset[WithoutDevices] = frozenset()
    rdma_exclusive: bool = False
    node_check: NodeCheck | None = None
    shim_bypass: ShimBypass | None = None
    node_install: NodeInstall | None = None
    runtime_handlers: frozenset[str] | None = None
    vf_faults: VfFaults | None = None
    uses: HostFacts = NO_FACTS
    guid_failures: Mapping[str, str] = field(default_factory=dict, hash=False)
    kernel: str = ""
    hardware_results: Mapping[str, HardwareResult] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster's facts about this node.

    ``assigned`` are the VFs of pods with live assignments, None if they were not read. ``drained`` are the entries of
    the drain annotation, ``<pf>`` or ``<pf>/<vf>``.
    """

    assigned: frozenset[AssignedVfKey] | None = None
    drained: frozenset[str] = frozenset()
