"""Give a node GUID to VFs that lack one: set a MAC, on InfiniBand the GUID, then rebind the driver.

`mooring.nic.node_guid` says why. On InfiniBand a VF without a GUID gets no address from the subnet manager.

VFs that a pod holds or is about to get are left to the CNI plugin, which does the same at ADD. VFs that the host uses
are left alone: a rebind would remove the netdev and the RDMA device that are in use. `run` repairs one VF at a time,
under the locks of the VF and its PF. A run that is killed leaves at most one VF without a driver, which the next run
prepares as a new VF.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from advertiser.host.pod_records import recorded_vfs
from advertiser.host.read_host import Roots
from advertiser.init import pci_driver
from advertiser.init.pf_mac import PermanentAddresses, pf_mac
from advertiser.inventory.facts import Host, PciFunction, Vf
from advertiser.inventory.init_plan import NO_MAC, ForbiddenError, vf_guid, vf_mac, vfs_without_guid
from advertiser.inventory.matching import OfferedPf
from mooring.errors import RecordError
from mooring.locks import LockBusyError, hold
from mooring.nic.settings import VfSettings
from mooring.nic.vf_users import user_of
from mooring.nic.write_again import write_again
from mooring.records import guid_failures

# Seconds to wait for a lock. A VF's lock is held while a CNI call uses the VF, a PF's while one configures its VFs.
_VF_LOCK_S, _PF_LOCK_S = 1.0, 60.0
_log = structlog.get_logger()


class AdminMacs(PermanentAddresses, Protocol):
    """Reads a PF's permanent MAC, and reads and writes the settings of its VFs."""

    def read_all(self, pf: str) -> Mapping[int, VfSettings]: ...

    def write(self, pf: str, vf: int, settings: VfSettings) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeGuidRepair:
    """Repairs the VFs of PFs below ``roots``; ``read`` reads the host."""

    roots: Roots
    macs: AdminMacs
    read: Callable[[], Host]

    def run(self, pci: str, offered: OfferedPf) -> None:
        """Repair the unused VFs of a PF; raise ForbiddenError if a VF cannot be bound to its driver again."""
        for index in self._candidates(pci, offered):
            vf = self._vf(self.read(), pci, index)
            if vf is None or vf.address is None:
                continue
            try:
                with hold(self.roots.run, vf.address, _VF_LOCK_S), hold(self.roots.run, pci, _PF_LOCK_S):
                    # Read again: the previous holder of the lock may have taken the VF.
                    if index not in self._candidates(pci, offered):
                        continue
                    if user := self._user(pci, index):
                        _log.warning("VF still has no node GUID", pf=offered.name, vf=index, reason=user)
                        continue
                    self._repair(pci, offered, index, vf)
            except LockBusyError as busy:
                _log.warning("VF still has no node GUID", pf=offered.name, vf=index, reason=str(busy))

    def _vf(self, host: Host, pci: str, index: int) -> Vf | None:
        function = _function(host, pci)
        return function.vfs.get(index) if function is not None else None

    def _user(self, pci: str, index: int) -> str | None:
        host = self.read()
        vf = self._vf(host, pci, index)
        return user_of(vf.devices, host.uses) if vf is not None else "the VF is gone"

    def _candidates(self, pci: str, offered: OfferedPf) -> tuple[int, ...]:
        host = self.read()
        function = _function(host, pci)
        if function is None:
            return ()
        try:
            held = recorded_vfs(self.roots.state) | host.ledger.keys()
        except (RecordError, OSError) as unreadable:
            _log.warning("VFs still have no node GUID", pf=offered.name, reason=str(unreadable))
            return ()
        return vfs_without_guid(function, offered.link, offered.terms, held)

    def _repair(self, pci: str, offered: OfferedPf, index: int, vf: Vf) -> None:
        address, driver, pf = vf.address or "", vf.driver or "", offered.name
        if not (self._sets_guid if offered.link == "infiniband" else self._sets_mac)(pci, pf, index, vf):
            return
        try:
            pci_driver.unbind(self.roots.sysfs, address, driver)
            pci_driver.bind(self.roots.sysfs, address, driver)
        except OSError as error:
            why = f"driver {driver!r} does not bind again ({error.strerror})"
            raise ForbiddenError(f"{pf}: VF {address}: {why}; see the kernel's log") from error
        if offered.link == "infiniband":
            guid_failures.note(self.roots.run, address, None)
        _log.info("VF now has a node GUID", pf=pf, vf=index, pci=address)

    def _sets_guid(self, pci: str, pf: str, index: int, vf: Vf) -> bool:
        """Set a VF's node and port GUID on InfiniBand; return whether the PF has taken them, and note a refusal."""
        function = _function(self.read(), pci)
        own = function.rdma[0].node_guid if function is not None and function.rdma else None
        try:
            if self.macs.read_all(pf)[index].guid is None:
                self.macs.write(pf, index, VfSettings(guid=vf_guid(own or "", index)))
        except (OSError, KeyError, ValueError) as unknown:
            why = f"its GUID cannot be set: {unknown}"
            _log.warning("VF still has no node GUID", pf=pf, vf=index, reason=why)
            guid_failures.note(self.roots.run, vf.address or "", why)
            return False
        return True

    def _sets_mac(self, pci: str, pf: str, index: int, vf: Vf) -> bool:
        """Set the admin MAC of a VF that has none; return whether the VF has one."""
        try:
            has_mac = self.macs.read_all(pf)[index].mac not in (None, NO_MAC)
            mac = None if has_mac else vf_mac(pf_mac(self._device(pci), pf, self.macs), index)
        except (ForbiddenError, OSError, KeyError, ValueError) as unknown:
            _log.warning("VF still has no node GUID", pf=pf, vf=index, reason=f"its MAC cannot be set: {unknown}")
            return False
        return mac is None or self._takes_mac(pf, index, vf, mac)

    def _takes_mac(self, pf: str, index: int, vf: Vf, mac: str) -> bool:
        try:
            self.macs.write(pf, index, VfSettings(mac=mac))
        except OSError as error:
            _log.warning("VF still has no node GUID", pf=pf, vf=index, reason=f"its MAC cannot be set: {error}")
            self._write_again(pf, index, vf)
            return False
        return True

    def _write_again(self, pf: str, index: int, vf: Vf) -> None:
        """Restore MAC and spoof check after the NIC has rejected a MAC; if it rejects them, too, unbind the VF.

        No pod can get the VF then until a run of `init` has set both.
        """
        try:
            found = self.macs.read_all(pf)[index]
            mac = None if found.mac == NO_MAC else found.mac
            write_again(partial(self.macs.write, pf, index), VfSettings(mac=mac, spoofchk=found.spoofchk))
        except (OSError, KeyError) as error:
            pci_driver.unbind(self.roots.sysfs, vf.address or "", vf.driver or "")
            why = f"the NIC rejects its MAC and spoof check ({error}); the VF has no driver until init sets both"
            raise ForbiddenError(f"{pf}: VF {vf.address}: {why}") from error

    def _device(self, pci: str) -> Path:
        return self.roots.sysfs / "bus/pci/devices" / pci


def _function(host: Host, pci: str) -> PciFunction | None:
    return next((function for function in host.functions if function.address == pci), None)
