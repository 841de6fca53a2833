"""PCIe roots by the paths of bridges, as drivers of DRA name them."""

import pytest

from mooring.nic.pci import pcie_root


@pytest.mark.parametrize(
    ("address", "bridges", "root"),
    [
        # An HGX H100's: the switch lies below the root port 0000:15:01.0, on the root bus 15.
        ("0000:18:00.0", ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0"), "pci0000:15"),
        # Its second function.
        ("0000:18:00.1", ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0"), "pci0000:15"),
        # On the root bus itself.
        ("0000:c1:00.0", (), "pci0000:c1"),
        # Below Intel's VMD, which is a function of the root bus 00 with a domain of its own.
        ("10000:e1:00.0", ("0000:00:0e.0", "10000:e0:00.0"), "pci0000:00"),
    ],
)
def test_the_root_is_the_bus_that_the_path_begins_on(address: str, bridges: tuple[str, ...], root: str) -> None:
    """The first folder below /sys/devices has that name, and the attribute pcieRoot of a device too."""
    assert pcie_root(address, bridges) == root
