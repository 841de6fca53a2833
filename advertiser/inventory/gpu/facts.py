"""Types for facts about a host's GPUs as read, by source; None if a source does not report a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advertiser.inventory.facts import Text
from mooring.gpu.cdi import CdiDevice
from mooring.gpu.inventory import Vendor


@dataclass(frozen=True, slots=True)
class GpuFunction:
    """A GPU's PCI function in sysfs; ``drm`` are its nodes below /dev/dri.

    ``product_name``, ``vram`` (bytes), ``unique_id`` (hexadecimal), ``partition`` and ``hive`` (equal for GPUs that
    xGMI joins) are amdgpu's attributes.
    """

    address: str
    vendor: Vendor
    driver: str | None = None
    numa_node: Text = None
    path: tuple[str, ...] = ()
    drm: tuple[str, ...] = ()
    product_name: Text = None
    vram: Text = None
    unique_id: Text = None
    partition: Text = None
    hive: Text = None


@dataclass(frozen=True, slots=True)
class NvidiaInformation:
    """What NVIDIA's driver shows of a GPU in /proc/driver/nvidia; ``instances``: MIG instances exist."""

    uuid: str | None = None
    model: str | None = None
    minor: int | None = None
    excluded: bool = False
    instances: bool = False


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU in AMD's KFD topology: its id (0: none), and the PCI addresses of the GPUs that it reaches by xGMI."""

    unique_id: int = 0
    xgmi: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """What NVML reports about a GPU.

    ``nvlinks`` are the GPUs at the other end of its NVLinks; ``switched``: a link leads to an NVSwitch. ``xids`` are
    the Xid errors since this program started to listen. ``fabric`` is why its NVSwitch fabric is not set up, empty if
    it is or the GPU is on none.
    """

    uuid: str | None = None
    model: str | None = None
    memory_bytes: int | None = None
    mig: bool = False
    nvlinks: frozenset[str] = frozenset()
    switched: bool = False
    xids: frozenset[int] = frozenset()
    fabric: str = ""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """All facts about a host's GPUs.

    ``nvidia``, ``kfd`` and ``nvml`` are by PCI address; ``nvml`` is None without the library. ``exposed`` is why
    containers can take GPUs without an assignment, empty if they cannot.
    """

    functions: tuple[GpuFunction, ...] = ()
    nvidia: Mapping[str, NvidiaInformation] = field(default_factory=dict)
    kfd: Mapping[str, KfdNode] = field(default_factory=dict)
    nvml: Mapping[str, NvmlGpu] | None = None
    cdi: tuple[CdiDevice, ...] = ()
    exposed: str = ""
