"""Read AMD's KFD topology: ``class/kfd/kfd/topology/nodes/<n>/{gpu_id,properties,io_links/<m>/properties}`` in sysfs.

A node without a ``gpu_id`` is a CPU. If a process's device cgroup does not allow a GPU's render node, reading the GPU's
node fails with EPERM (``kfd_devcgroup_check_permission``). In such a container the hive in the PCI function's folder
shows the links instead.

Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c, ``node_show``, ``iolink_show`` and ``kfd_topology_add_device``.
"""

from pathlib import Path

from advertiser.host.sysfs import list_entries, read_attribute
from advertiser.inventory.gpu.facts import KfdNode

# CRAT_IOLINK_TYPE_XGMI in kfd_crat.h.
_XGMI = "11"
_NODES = Path("class/kfd/kfd/topology/nodes")
Properties = dict[str, str]


def read_kfd(sysfs: Path) -> dict[str, KfdNode]:
    """Return the GPUs of the topology by PCI address; empty without amdgpu's KFD."""
    folders = {folder.name: folder for folder in list_entries(sysfs / _NODES)}
    nodes = {
        number: (folder, _properties(folder / "properties")) for number, folder in folders.items() if _is_gpu(folder)
    }
    addresses = {number: _address(properties) for number, (_, properties) in nodes.items()}
    return {
        addresses[number]: KfdNode(_number(properties.get("unique_id")), _reached(folder, addresses))
        for number, (folder, properties) in nodes.items()
    }


def _is_gpu(folder: Path) -> bool:
    return (read_attribute(folder / "gpu_id") or "0") != "0"


def _address(properties: Properties) -> str:
    """Return the PCI address from ``location_id``: bus, device and function as in ``pci_dev_id``.

    If a GPU is partitioned, each node but the first has its partition number in the function's bits, so its address
    belongs to no function.
    """
    location = _number(properties.get("location_id"))
    return (
        f"{_number(properties.get('domain')):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
    )


def _reached(folder: Path, addresses: dict[str, str]) -> frozenset[str]:
    links = (_properties(link / "properties") for link in list_entries(folder / "io_links"))
    targets = (link.get("node_to", "") for link in links if link.get("type") == _XGMI)
    return frozenset(addresses[number] for number in targets if number in addresses)


def _properties(path: Path) -> Properties:
    """Return a properties file as a mapping; each line is a name, a space and a decimal number."""
    lines = (line.split(" ", 1) for line in (read_attribute(path) or "").splitlines())
    return {pair[0]: pair[1] for pair in lines if len(pair) == 2}


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) <= 20 else 0
