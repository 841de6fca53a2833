"""PCI addresses in the kernel's form (``0000:3b:00.2``), and computing the addresses of a PF's VFs.

The VF with index ``i`` has the routing id ``VF0 + i * stride`` in the PF's domain; after 256 functions it is on the
next bus. A routing id is bus, device and function as one 16-bit number. Source: PCIe base specification, SR-IOV, First
VF Offset and VF Stride; the kernel's ``pci_iov_virtfn_bus`` and ``pci_iov_virtfn_devfn`` in drivers/pci/iov.c.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.ASCII)
NOT_AN_ADDRESS = "is not a PCI address such as '0000:3b:00.2'"


def pf_name(address: str) -> str:
    """Return the name of a PF without a netdev: its address without colons, which interface names cannot contain."""
    return address.replace(":", "-")


def is_pf_name(text: str) -> bool:
    """Return whether a PF's name is one that `pf_name` makes."""
    return is_address(pf_address(text))


def pf_address(name: str) -> str:
    """Return the address in a name that `pf_name` has made."""
    return name.replace("-", ":")


def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


def pcie_root(address: str, bridges: Sequence[str]) -> str:
    """Return the PCIe root above a function, in the form of DRA drivers: ``pci<domain>:<bus>``.

    ``bridges`` are the bridges above the function, from the root down. The first one, or the function if there are
    none, is on the root bus, from which the kernel names the host bridge (``pci_register_host_bridge`` in
    drivers/pci/probe.c). For a root below another function, as with Intel's VMD, this is the outer root, because
    drivers use the first folder below /sys/devices (``resolvePCIeRoot`` in
    k8s.io/dynamic-resource-allocation/deviceattribute/pci_linux.go).
    """
    return f"pci{(bridges[0] if bridges else address).rsplit(':', 1)[0]}"


def routing_id(address: str) -> tuple[str, int]:
    """Split an address into its domain and its 16-bit routing id; raise ValueError if it is not a PCI address."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} {NOT_AN_ADDRESS}")
    domain, bus, device, function = match.groups()
    return domain, int(bus, 16) << 8 | int(device, 16) << 3 | int(function)


@lru_cache(maxsize=1 << 14)
def vf_address(vf0: str, stride: int, index: int) -> str:
    """Return the PCI address of VF ``index``, counted from VF 0 at ``vf0``; raise ValueError past the last bus."""
    domain, first = routing_id(vf0)
    rid = first + index * stride
    if rid > 0xFFFF:
        raise ValueError(f"vf {index!r} at stride {stride!r} from {vf0!r} is beyond bus ff")
    return f"{domain}:{rid >> 8:02x}:{rid >> 3 & 0x1F:02x}.{rid & 7}"
