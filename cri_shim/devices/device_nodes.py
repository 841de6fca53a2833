"""Find the device nodes of a VF by its PCI address, at each call, because a rebind of its driver changes them.

``infiniband_verbs/`` below the PCI function is read, not ``infiniband/``: in exclusive mode the RDMA device itself is
in the pod's network namespace and the host's folder is empty. Source: the kernel's uverbs_main.c and user_mad.c in
drivers/infiniband/core.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cri_shim.plan.inject import VfDevices
from mooring.files import read_file
from mooring.gpu.cdi_folders import DEFAULT_FOLDERS
from mooring.names import is_rdma
from mooring.nic.function_devices import names_in, own_verbs

_CONNECTION_MANAGER = "rdma_cm"


class DeviceError(LookupError):
    """A VF whose devices cannot be added to a container; the text has the VF and the reason."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders of sysfs and of the device nodes, and whether containers also get umad and issm devices.

    ``proc`` and the CDI specifications in ``cdi`` (folders, separated by colons) describe the GPUs.
    """

    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    management: bool = False
    proc: Path = Path("/proc")
    cdi: str = DEFAULT_FOLDERS


def resolve(pci: str, roots: Roots) -> VfDevices:
    """Return the devices of the VF at ``pci``; raise DeviceError.

    An unusable name of the RDMA device does not refuse the container: in shared mode any pod with NET_ADMIN can rename
    the device (nldev_set_doit in the kernel's drivers/infiniband/core/nldev.c).
    """
    function = roots.sysfs / "bus/pci/devices" / pci
    try:
        uverbs = _uverbs_folder(pci, function / "infiniband_verbs")
        rdma = (uverbs / "ibdev").read_text(encoding="utf-8", errors="replace").strip()
        sources = [uverbs, *(_management(function, rdma) if roots.management else ())]
        nodes = [_node(source, roots.dev / "infiniband" / source.name) for source in sources]
    except OSError as error:
        raise DeviceError(f"VF {pci}: {error.filename}: {error.strerror}") from None
    return VfDevices(rdma if is_rdma(rdma) else None, uverbs.name, (*nodes, _connection_manager(roots.dev)))


def uverbs_number(pci: str, roots: Roots) -> str:
    """Return the number of the VF's uverbs device as ``major:minor``, such as ``231:195``; raise DeviceError."""
    try:
        return (
            (_uverbs_folder(pci, roots.sysfs / "bus/pci/devices" / pci / "infiniband_verbs") / "dev")
            .read_text()
            .strip()
        )
    except OSError as error:
        raise DeviceError(f"VF {pci}: {error.filename}: {error.strerror}") from None


def node_number(path: Path) -> str:
    """Return the number of a device node as ``major:minor``; raise DeviceError."""
    try:
        status = path.stat()
    except OSError as error:
        raise DeviceError(f"{error.filename}: {error.strerror}") from None
    if not stat.S_ISCHR(status.st_mode):
        raise DeviceError(f"{str(path)!r} is not a character device")
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _uverbs_folder(pci: str, folder: Path) -> Path:
    names = own_verbs(folder.parent)
    if len(names) != 1:
        raise DeviceError(f"VF {pci}: {len(names)} devices in {str(folder)!r}, expected 1")
    return folder / names[0]


def _management(function: Path, rdma: str) -> list[Path]:
    """Return umad and issm of an RDMA device: a sub-device below the same function has its own."""
    nodes = (function / "infiniband_mad" / name for name in names_in(function / "infiniband_mad"))
    return [node for node in nodes if (read_file(node / "ibdev") or rdma).strip() == rdma]


def _node(source: Path, node: Path) -> str:
    """Return a node's path if its number matches sysfs; raise DeviceError.

    Other files than devices pass, because the runtime refuses them itself.
    """
    number = (source / "dev").read_text(encoding="utf-8").strip()
    status = node.stat()
    if stat.S_ISCHR(status.st_mode):
        actual = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        if actual != number:
            raise DeviceError(f"device node {str(node)!r} is {actual}, but the device {source.name} is {number}")
    return str(node)


def _connection_manager(dev: Path) -> str:
    node = dev / "infiniband" / _CONNECTION_MANAGER
    if not node.exists():
        raise DeviceError(f"device node {str(node)!r} is missing: load the kernel module rdma_ucm")
    return str(node)
