"""What a host says of its GPUs, as read and not judged, by source; None where a source does not tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advertiser.inventory.facts import Text
from mooring.gpu.cdi import CdiDevice
from mooring.gpu.inventory import Vendor


@dataclass(frozen=True, slots=True)
class GpuFunction:
    """A GPU's PCI function in sysfs; ``drm`` are its nodes below /dev/dri.

    ``product_name``, ``vram`` (bytes), ``unique_id`` (hexadecimal), ``partition`` and ``hive`` (which GPUs are joined
    by xGMI) are amdgpu's attributes.
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
    """What NVIDIA's driver writes of a GPU in /proc/driver/nvidia; ``instances``: MIG has cut GPU instances."""

    uuid: str | None = None
    model: str | None = None
    minor: int | None = None
    excluded: bool = False
    instances: bool = False


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU in AMD's KFD topology: its id, 0 for none, and the addresses of the GPUs that it reaches by xGMI."""

    unique_id: int = 0
    xgmi: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """What NVML says of a GPU: ``nvlinks`` are the GPUs at the other end of its links, ``switched``: one is NVSwitch.

    ``xids`` are the Xid errors that it has reported since this program began to listen.
    """

    uuid: str | None = None
    model: str | None = None
    memory_bytes: int | None = None
    mig: bool = False
    nvlinks: frozenset[str] = frozenset()
    switched: bool = False
    xids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """All of a host: ``nvidia``, ``kfd`` and ``nvml`` by PCI address, ``nvml`` None where the library is not.

    ``exposed`` is why any container can take GPUs by itself, empty where none can.
    """

    functions: tuple[GpuFunction, ...] = ()
    nvidia: Mapping[str, NvidiaInformation] = field(default_factory=dict)
    kfd: Mapping[str, KfdNode] = field(default_factory=dict)
    nvml: Mapping[str, NvmlGpu] | None = None
    cdi: tuple[CdiDevice, ...] = ()
    exposed: str = ""
