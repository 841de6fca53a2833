"""What the kernel does when a VF's driver is unbound and bound, on a tree of files and a VF table.

Files only store what is written to them, so whoever writes to such a tree calls `PciBus.write` instead: tests put it in
the place of the function that writes. Of Linux 6.12, drivers/pci/pci-driver.c:

- a function with a driver_override matches that driver alone (pci_match_device);
- a VF whose PF has sriov_drivers_autoprobe 0 is probed only if it has one (pci_device_can_probe);
- a write to drivers_probe that leads to no probe succeeds.
"""

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from devcluster.hosts.netdevs import Netdev, link, show
from devcluster.hosts.nic import Function, Host
from devcluster.hosts.sysfs import Tree, add_rdma, remove_rdma
from devcluster.hosts.vftable import VfTable


@dataclass(slots=True)
class PciBus:
    """The bus of ``host``, whose tree is at ``root``; ``bound`` are the VFs that were bound, by PCI address."""

    root: Path
    host: Host
    table: VfTable
    bound: list[str] = field(default_factory=list)
    _chosen: "count[int]" = field(default_factory=lambda: count(1))

    def write(self, path: Path, text: str) -> None:
        """Do what the kernel does with a write to a file of the tree."""
        if path.name == "driver_override":
            path.write_text((text.strip() or "(null)") + "\n")
        elif path.name == "unbind":
            self._unbind(text)
        elif path.name == "bind":
            self._probe(text, path.parent.name)
        elif path.name == "drivers_probe":
            self._probe(text, None)
        else:
            path.write_text(text)

    def take_netdev(self, function: Function) -> None:
        """Remove a VF's netdev; a test with real links overrides this, and `make_netdev`."""
        show(self.root, Tree(self.root).folder(function), function, None)

    def make_netdev(self, function: Function, mac: str) -> None:
        """Make a VF's netdev: it is new, closed, with a new index and an MTU of 1500."""
        netdev = Netdev(function.netdev, 1000 + next(self._chosen), mac)
        show(self.root, Tree(self.root).folder(function), function, netdev)

    def _unbind(self, pci: str) -> None:
        function = self._function(pci)
        driver = self._device(pci) / "driver"
        (driver / pci).unlink()
        driver.unlink()
        remove_rdma(Tree(self.root), function)
        self.take_netdev(function)

    def _probe(self, pci: str, wanted: str | None) -> None:
        device = self._device(pci)
        override = (device / "driver_override").read_text().strip()
        own = self._function(pci).pf.personality.vf_driver
        matching = override if override != "(null)" else own
        autoprobes = (device / "physfn/sriov_drivers_autoprobe").read_text().strip() == "1"
        if wanted not in (None, matching):
            raise OSError(19, "No such device")
        if override != "(null)" or autoprobes:
            self._bind(pci, matching, drives=matching == own)

    def _bind(self, pci: str, driver: str, *, drives: bool) -> None:
        folder = self.root / "bus/pci/drivers" / driver
        link(self._device(pci).resolve() / "driver", folder)
        link(folder / pci, self._device(pci).resolve())
        self.bound.append(pci)
        function = self._function(pci)
        if drives and function.vf is not None:
            chosen = f"02:ff:00:00:00:{next(self._chosen):02x}"
            node_guid, mac = self.table.bind(function.pf.name, function.vf, chosen)
            add_rdma(Tree(self.root), function, node_guid)
            self.make_netdev(function, mac)

    def _function(self, pci: str) -> Function:
        return next(function for function in self.host.functions() if function.pci == pci)

    def _device(self, pci: str) -> Path:
        return self.root / "bus/pci/devices" / pci
