"""Find a VF by its PCI address, and check that it is the assigned VF of the assigned PF.

Layout: the kernel's Documentation/ABI/testing/sysfs-bus-pci (physfn, virtfnN) and sysfs-class-net (speed, in Mb/s).
"""

import errno
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from cni.spec.skel import MISSING_VF, CniError
from mooring.annotations.assignment import AssignedVf
from mooring.nic.function_devices import own_index, own_netdevs, own_rdma_devices, own_verbs
from mooring.nic.pci import pf_name

# Seconds within which a netdev appears in sysfs after its return, or after its driver was bound.
APPEARS_S = 2.0
# How often a folder is read again: a netdev or RDMA device may be renamed or removed while it is read.
_MOST_LISTS = 10


@dataclass(frozen=True, slots=True)
class Sysfs:
    """The PCI devices below a sysfs root."""

    root: Path

    def exists(self, pci: str) -> bool:
        return self._device(pci).exists()

    def netdev(self, pci: str) -> int | None:
        """Return the index of a function's netdev in this network namespace, None if it has none here.

        Children of other netdevs, such as IPoIB's partitions, do not count (`mooring.nic.function_devices`).
        """
        return own_index(self._device(pci))

    def netdev_name(self, pci: str) -> str | None:
        """Return the name of a PF's netdev in this network namespace. Do not use it for VFs, whose names may change."""
        return next(iter(own_netdevs(self._device(pci))), None)

    def vf_of(self, kind: Literal["net", "infiniband"], name: str) -> str | None:
        """Return the PCI address of the VF whose netdev or RDMA device has this name in this network namespace."""
        function = self.root / "class" / kind / name / "device"
        try:
            return function.resolve().name if (function / "physfn").exists() else None
        except OSError:
            return None

    def lacks_netdev(self, pci: str) -> bool:
        """Return whether a function has no netdev in any namespace; a netdev elsewhere leaves an empty folder here."""
        return not (self._device(pci) / "net").exists()

    def rdma(self, pci: str) -> str | None:
        """Return the name of a function's RDMA device, in any namespace, from ``infiniband_verbs``; None without one.

        It is also None in the middle of a move (`lacks_verbs`), when the kernel replaces the uverbs device. If the name
        cannot be read, raise OSError and do not return None: a netdev must not move without its RDMA device.
        """
        try:
            verbs = self._verbs(pci)
            return (verbs / "ibdev").read_text(errors="surrogateescape").strip() if verbs is not None else None
        except FileNotFoundError:
            return None
        except OSError as error:
            # The uverbs device was removed while its file was read (ibdev_show, kernfs_get_active).
            if error.errno == errno.ENODEV:
                return None
            raise

    def rdma_devices(self, pci: str) -> int:
        """Return how many RDMA devices a function has, in all namespaces, without sub-devices; raise OSError."""
        return len(own_verbs(self._device(pci)))

    def lacks_verbs(self, pci: str) -> bool:
        """Return whether a function's RDMA device, in any namespace, has no uverbs device at the moment.

        It is then in the middle of a move (disable_device and enable_device_and_get of the kernel's
        drivers/infiniband/core/device.c). The device itself stays in sysfs; one elsewhere leaves an empty folder here.
        """
        function = self._device(pci)
        return (function / "infiniband").exists() and not (function / "infiniband_verbs").exists()

    def verbs_number(self, pci: str) -> str | None:
        """Return a function's uverbs device number as ``major:minor``, such as ``231:192``; None without one."""
        try:
            verbs = self._verbs(pci)
            return (verbs / "dev").read_text().strip() if verbs is not None else None
        except OSError:
            return None

    def rdma_identity(self, pci: str) -> int | None:
        """Return a number that identifies a function's present RDMA device; None without one in any namespace.

        No later device has the same number: it is an inode number, which sysfs counts up (kernfs_new_node in
        fs/kernfs/dir.c).
        """
        try:
            verbs = self._verbs(pci)
            return verbs.stat().st_ino if verbs is not None else None
        except FileNotFoundError:
            return None

    def node_guid(self, pci: str) -> str | None:
        """Return the node GUID of a function's RDMA device in this namespace, such as ``0200:00ff:fe00:0001``."""
        for _ in range(_MOST_LISTS):
            try:
                devices = own_rdma_devices(self._device(pci))
                return (self._device(pci) / "infiniband" / devices[0] / "node_guid").read_text().strip()
            except IndexError:
                return None
            except FileNotFoundError:
                continue
            except OSError:
                return None
        return None

    def driver(self, pci: str) -> str | None:
        """Return the name of the driver that a function is bound to."""
        try:
            return (self._device(pci) / "driver").readlink().name
        except OSError:
            return None

    def driver_override(self, pci: str) -> str | None:
        """Return the only driver that the kernel may bind a function to, None if any driver that supports it may."""
        try:
            override = (self._device(pci) / "driver_override").read_text().strip()
        except OSError:
            return None
        return override if override != "(null)" else None

    def pf_pci(self, vf: AssignedVf) -> str:
        """Return the PCI address of a VF's PF; raise CniError 102 if VF or PF are not the assigned ones.

        The name of a PF without a netdev is its PCI address.
        """
        device = self._device(vf.pci)
        if not device.exists():
            raise CniError(MISSING_VF, f"vf {vf.pci} of pf {vf.pf!r} does not exist on this node")
        try:
            pf_pci = (device / "physfn").readlink().name
            linked_pci = (self._device(pf_pci) / f"virtfn{vf.vf}").readlink().name
        except OSError:
            raise CniError(MISSING_VF, f"pci function {vf.pci} is not vf {vf.vf} of pf {vf.pf!r}") from None
        if linked_pci != vf.pci:
            raise CniError(MISSING_VF, f"pci function {vf.pci} is not vf {vf.vf} of pf {vf.pf!r}")
        if vf.pf != pf_name(pf_pci) and not (self._device(pf_pci) / "net" / vf.pf).exists():
            current_name = self.netdev_name(pf_pci) or pf_name(pf_pci)
            subject = f"pci function {vf.pci} is not vf {vf.vf} of pf {vf.pf!r}"
            raise CniError(MISSING_VF, f"{subject}: its pf is now named {current_name!r}")
        return pf_pci

    def pf_of(self, pci: str) -> str:
        """Return the PCI address of a VF's PF; raise OSError for a VF without one."""
        return (self._device(pci) / "physfn").readlink().name

    def mac(self, pci: str, netdev: str) -> str | None:
        """Return the MAC of a function's netdev, None if it cannot be read."""
        try:
            return (self._device(pci) / "net" / netdev / "address").read_text().strip()
        except OSError:
            return None

    def current_pf(self, pci: str, pf: str, vf: int) -> tuple[str, int]:
        """Return the current name of a VF's PF (``pf`` if it still has that name), and the VF's index on it.

        Names can be swapped: after a reboot a PF may have the name of another one. Raise OSError for a VF without a PF.
        """
        device = (self._device(pci) / "physfn").resolve(strict=True)
        # Try the last known index first: a PF has up to 256 VFs.
        links = chain([device / f"virtfn{vf}"], device.glob("virtfn*"))
        index = next((link.name for link in links if link.is_symlink() and link.readlink().name == pci), None)
        names = own_netdevs(device) or [pf_name(device.name)]
        if index is None or (pf not in names and len(names) != 1):
            raise OSError(
                errno.ENODEV,
                f"vf {pci} is no longer a vf of pf {pf!r}; its physical function has the interfaces {', '.join(names)}",
            )
        return (pf if pf in names else names[0]), int(index.removeprefix("virtfn"))

    def line_rate_mbps(self, pf_pci: str, pf: str) -> int:
        """Return a PF's line rate in Mb/s, 0 if the driver does not report it."""
        try:
            return max(int((self._device(pf_pci) / "net" / pf / "speed").read_text()), 0)
        except (OSError, ValueError):
            return 0

    def mtu(self, pci: str, netdev: str) -> int | None:
        """Return the MTU of a function's netdev in this network namespace, None if it cannot be read."""
        try:
            return int((self._device(pci) / "net" / netdev / "mtu").read_text())
        except (OSError, ValueError):
            return None

    def _verbs(self, pci: str) -> Path | None:
        """Return the folder of a function's uverbs device; raise OSError if it cannot be read."""
        function = self._device(pci)
        return next((function / "infiniband_verbs" / name for name in own_verbs(function)), None)

    def _device(self, pci: str) -> Path:
        return self.root / "bus" / "pci" / "devices" / pci
