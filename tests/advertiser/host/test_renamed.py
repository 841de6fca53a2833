"""Devices that udev renames while they are read."""

import os
from pathlib import Path
from threading import Thread

from advertiser.host.sysfs import read_functions
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build

PF = "0000:04:00.0"


def read_while(tree: Path, attribute: Path, new: Path) -> None:
    """Rename an attribute's device in the middle of a reading, which waits at the attribute meanwhile."""
    text = attribute.read_text()
    attribute.unlink()
    os.mkfifo(attribute)

    def rename() -> None:
        with attribute.open("w") as waiting:
            attribute.unlink()
            attribute.write_text(text)
            attribute.parent.rename(new)
            waiting.write(text)

    thread = Thread(target=rename)
    thread.start()
    (function, _) = read_functions(tree)
    thread.join()
    (netdev,), (device,) = function.netdevs, function.rdma
    assert (netdev.name, netdev.type, netdev.speed) == ("ens1f0np0", "1", "100000")
    assert (device.name, device.ports[0].link_layer) == ("mlx5_0", "Ethernet")


def test_a_netdev_that_is_renamed_is_read_whole(tmp_path: Path) -> None:
    """What the old name no longer shows is not taken for unknown: the PF would not be on offer."""
    build(tmp_path, describe_host("n1", 1, vfs=1))
    netdevs = tmp_path / "bus/pci/devices" / PF / "net"
    netdev = next(netdevs.iterdir())
    read_while(tmp_path, netdev / "type", netdevs / "ens1f0np0")
