"""Prepare a host's PFs as the operator's offer asks (`mooring-advertiser init`).

`init` prepares one PF at a time, under the PF's lock. Meanwhile a marker below ``<run>/init/preparing`` makes the
advertiser publish the PF's VFs as out. The marker stores what must be restored, so the next `init` can complete a run
that was killed.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from advertiser.host.devlink import ReadModes, read_modes
from advertiser.host.read_host import Roots, read_host
from advertiser.init import pci_driver, pf_link
from advertiser.init.leave_offer import leave_offer
from advertiser.init.pf_mac import pf_mac
from advertiser.init.repair_node_guid import NodeGuidRepair
from advertiser.init.vf_settings_writer import VfSettingsWriter
from advertiser.inventory import init_plan
from advertiser.inventory.facts import Host, PciFunction
from advertiser.inventory.init_plan import ForbiddenError, Plan
from advertiser.inventory.matching import OfferedPf, entries_without_pf, offered_pf
from advertiser.inventory.offer import Offer
from advertiser.inventory.shared_vlans import shared_vlans
from advertiser.inventory.vf_state import still_held
from mooring.files import make_folder, read_file, remove_file, write_file
from mooring.indexes import Indexes
from mooring.locks import hold, hold_locks
from mooring.names import LinkType
from mooring.nic.pf_drivers import without_rates
from mooring.nic.refusals import NO_SUCH_SETTING, errno_name
from mooring.nic.settings import VfSettings
from mooring.nic.write_again import UNCHANGED_ERRORS
from mooring.records.run_folder import IN_PREPARATION, READY

_NUMVFS, _AUTOPROBE = "sriov_numvfs", "sriov_drivers_autoprobe"
_LOCK_S = 60.0  # longer than any ADD or DEL
_VF_LOCK_S = 1.0
# udev renames a netdev once; an operator's tool may rename it again.
_RENAMED_AT_MOST = 3
_log = structlog.get_logger()
# (PF, VFs done, VFs in all)
ProgressCallback = Callable[[str, int, int], None]


class NoSuchSettingError(ForbiddenError):
    """A setting that the NIC does not support."""


@dataclass(frozen=True, slots=True)
class PfPreparer:
    """Prepares PFs below ``roots``; ``progress`` is called after each VF, ``modes`` reads devlink."""

    roots: Roots
    writer: VfSettingsWriter
    progress: ProgressCallback
    modes: ReadModes = read_modes

    def prepare_all(self, offer: Offer, node: str) -> tuple[ForbiddenError | OSError, ...]:
        """Prepare every PF that has ``init`` in the offer; continue after failures and return them.

        First write the node's part of the offer into the state folder. Raise OSError if that fails, or if the host
        cannot be read. An entry that matches no PF is a failure, too: the PF may lack SR-IOV, or its driver yet.
        """
        host = self._read()
        leave_offer(self.roots, host, offer, node)
        repair = NodeGuidRepair(self.roots, self.writer, self._read)
        failures: list[ForbiddenError | OSError] = []
        for warning in shared_vlans(offer):
            _log.warning("other namespaces can have a VLAN of the offer", node=node, reason=warning)
        for complaint in entries_without_pf(host, offer, node):
            _log.error("offer entry without a PF", node=node, reason=complaint)
            failures.append(ForbiddenError(complaint))
        for function in host.functions:
            found = offered_pf(function, host, offer, node)
            if found is None:
                continue
            if found.terms.init is None:
                pf_link.warn_of_lost_frames(self.roots.sysfs, function, found.name)
                continue
            try:
                found = self._prepare_by_address(function, found, offer, node)
                repair.run(function.address, found)
            except (ForbiddenError, OSError) as error:
                _log.error("PF not prepared", pf=found.name, pci=function.address, reason=str(error))
                failures.append(error)
        return tuple(failures)

    def _prepare_by_address(self, function: PciFunction, found: OfferedPf, offer: Offer, node: str) -> OfferedPf:
        """Prepare a PF and return it with its current name.

        At boot udev may rename the PF's netdev while `init` runs. If preparing fails and the PF has a new name, try
        again with that name.
        """
        for _ in range(_RENAMED_AT_MOST):
            try:
                self._prepare(function, found.name, found.link, offer, node)
            except (ForbiddenError, OSError):
                host = self._read()
                function = _function(host, function.address)
                renamed = offered_pf(function, host, offer, node)
                if renamed is None or renamed.name == found.name:
                    raise
                _log.info("PF was renamed, preparing it again", pf=renamed.name, before=found.name)
                found = renamed
            else:
                return found
        raise ForbiddenError(f"{function.address}: the PF's netdev keeps being renamed")

    def _prepare(self, function: PciFunction, pf: str, link: LinkType, offer: Offer, node: str) -> None:
        with hold(self.roots.run, function.address, _LOCK_S), self._marked(function, pf):
            # Read again: the previous holder of the lock may have changed the host.
            host = self._read()
            function = _function(host, function.address)
            found = offered_pf(function, host, offer, node)
            if found is None or found.terms.init is None:
                return
            mode = host.eswitch.get(function.address)
            function = pf_link.with_team(function, pf)
            judge = partial(init_plan.plan, function, pf, link, found.terms.init)
            plan = judge(still_held(host), mode, host.uses)
            if plan.left_out:
                names = ", ".join(plan.left_out)
                _log.warning("settings of the offer ignored", pf=pf, pci=plan.pci, link=link, settings=names)
            # bnxt_en creates no VFs on a PF that is down. On InfiniBand no VF depends on the PF's IPoIB netdev.
            if link == "ethernet":
                pf_link.bring_up(self._device(plan.pci), pf, self.writer)
                pf_link.set_mtu(self._device(plan.pci), plan, self.writer)
            if plan.recreate:
                # ADD takes a VF under the VF's lock. So with all locks held, no ADD can take one unnoticed.
                with hold_locks(self.roots.run, _vf_addresses(function), _VF_LOCK_S):
                    host = self._read()
                    judge(still_held(host), mode, host.uses)
                    self._make_vfs(function, plan)
                function = _function(self._read(), plan.pci)
            if plan.enrols:
                self._enrol(plan)
            kept = Indexes.of(
                index for index, vf in function.vfs.items() if vf.driver and vf.address not in host.ledger
            )
            self._prepare_vfs(function, plan, link, host)
            self._warn_of_unchecked(plan, kept)
            pf_link.warn_of_lost_frames(self.roots.sysfs, function, pf)
            _log.info("PF prepared", pf=pf, pci=plan.pci, vfs=plan.vfs, recreated=plan.recreate)

    def _warn_of_unchecked(self, plan: Plan, kept: Indexes) -> None:
        """Warn of VFs with spoof check off, as earlier versions left it; `init` does not change it under their pods."""
        with contextlib.suppress(OSError):
            if kept and (vfs := init_plan.unchecked_vfs(plan, kept, self.writer.read_all(plan.pf))):
                _log.warning("VFs keep spoof check off", pf=plan.pf, pci=plan.pci, vfs=str(vfs))

    def _read(self) -> Host:
        return read_host(self.roots, self.modes)

    @contextlib.contextmanager
    def _marked(self, function: PciFunction, pf: str) -> Iterator[None]:
        """Mark the PF as in preparation and turn autoprobe off meanwhile; the marker stores autoprobe's old value."""
        marker = self.roots.run / IN_PREPARATION / function.address
        autoprobe = self._device(function.address) / _AUTOPROBE
        is_new = not marker.exists()
        if is_new:
            make_folder(marker.parent, 0o755)
            write_file(marker, read_file(autoprobe) or "")
        before = (read_file(marker) or "").strip()
        try:
            if before:
                _write(autoprobe, "0")
        except OSError as error:
            if is_new:  # Nothing was changed, so the PF is on offer as before.
                remove_file(marker)
            raise init_plan.refusal(function, pf, _AUTOPROBE, "0", error) from error
        try:
            yield
        finally:
            if before:
                _write(autoprobe, before)
            remove_file(marker)

    def _make_vfs(self, function: PciFunction, plan: Plan) -> None:
        """Write sriov_numvfs and read it back: bnxt_en can create fewer VFs, or none, without an error.

        Source: bnxt_sriov_configure in Linux 6.12, which does nothing on a PF that is down, and sriov_numvfs_store in
        drivers/pci/iov.c, which only logs a lower number.
        """
        numvfs = self._device(plan.pci) / _NUMVFS
        try:
            if function.numvfs != "0":
                _write(numvfs, "0")
            _write(numvfs, str(plan.vfs))
        except OSError as error:
            raise init_plan.refusal(function, plan.pf, _NUMVFS, str(plan.vfs), error) from error
        made = (read_file(numvfs) or "").strip()
        if made != str(plan.vfs):
            raise init_plan.shortfall(function, plan, made)

    def _enrol(self, plan: Plan) -> None:
        """Write the rates 0/0 to every VF without a rate, also to VFs of pods, whose settings this does not change.

        `mooring.nic.pf_drivers` explains why. The CNI plugin does the same before it sets the first min rate of a PF.
        """
        try:
            found = self.writer.read_all(plan.pf)
            self.writer.clear_rates(plan.pf, without_rates(found))
        except OSError as error:
            # EOPNOTSUPP: the device does not support rates, so no VF can have a min rate.
            if error.errno != errno.EOPNOTSUPP:
                name = errno_name(error)
                raise ForbiddenError(f"{plan.pf}: the NIC rejects rates 0/0 for its VFs ({name})") from error

    def _prepare_vfs(self, function: PciFunction, plan: Plan, link: LinkType, host: Host) -> None:
        address = self._pf_address(plan, function, link)
        for index in range(plan.vfs):
            vf = function.vfs.get(index)
            if vf is None or vf.address is None:
                raise ForbiddenError(f"{plan.pf}: VF {index} does not exist although sriov_numvfs is {plan.vfs}")
            # A VF with a driver was prepared before or belongs to a pod: leave it.
            if vf.driver is None and not self._is_reserved(plan, vf.address):
                with self._alone(vf.address, plan, host) as is_free:
                    if is_free:
                        self._write_settings(plan, index, link, address)
                        self._bind(vf.address, plan)
            self.progress(plan.pf, index + 1, plan.vfs)

    @contextlib.contextmanager
    def _alone(self, vf: str, plan: Plan, host: Host) -> Iterator[bool]:
        """Keep the CNI plugin away from a VF without a driver; yield whether it still has none.

        A ledger entry can belong to a VF that no longer exists, for example after a reload of the PF's driver; the
        entry stays until its pod ends. VFs that this run has created cannot be in use. For other VFs a CNI call may be
        rebinding the driver: it holds the VF's lock, and may be waiting for this PF's lock.
        """
        if plan.recreate or vf not in host.ledger:
            yield True
            return
        with hold(self.roots.run, vf, _VF_LOCK_S):
            yield not (self._device(vf) / "driver").exists()

    def _is_reserved(self, plan: Plan, vf: str) -> bool:
        """Return whether the operator's driver_override reserves the VF for another driver; `init` then leaves it."""
        other = pci_driver.reserved_for(self.roots.sysfs, vf, plan.driver)
        if other is not None:
            _log.warning("VF is reserved for another driver", pf=plan.pf, pci=vf, driver_override=other)
        return other is not None

    def _pf_address(self, plan: Plan, function: PciFunction, link: LinkType) -> str:
        """Return the PF's MAC or GUID, from which the VFs' are derived; raise ForbiddenError."""
        if link == "ethernet":
            return pf_mac(self._device(plan.pci), plan.pf, self.writer)
        if not function.rdma:
            why = "its RDMA device is not in the host's network namespace, and its VFs' GUIDs derive from it"
            raise ForbiddenError(f"{plan.pf}: {why}")
        path = self._device(plan.pci) / "infiniband" / function.rdma[0].name / "node_guid"
        guid = (read_file(path) or "").strip()
        if not guid:
            raise ForbiddenError(f"{plan.pf}: {str(path)!r} cannot be read, and its VFs' GUIDs derive from it")
        return guid

    def _write_settings(self, plan: Plan, index: int, link: LinkType, address: str) -> None:
        if link == "infiniband" and plan.sets_guids:
            guid = init_plan.vf_guid(address, index)
            self._set(plan.pf, index, "guid", partial(self.writer.write_guid, plan.pf, index, guid))
        mac = None if link == "infiniband" else init_plan.vf_mac(address, index)
        for wish in init_plan.settings_in_order(plan.settings, mac, has_rates=plan.has_rates):
            if wish.spoofchk:
                # The NIC may have rejected it in an earlier run, and some drivers skip equal values (`write_again`).
                self._turn_check_off(plan.pf, index)
            try:
                self._set(plan.pf, index, ", ".join(wish.to_fields()), partial(self.writer.write, plan.pf, index, wish))
            except NoSuchSettingError:
                # A NIC without rates has none to reset.
                if wish.max_tx_rate is None:
                    raise
            if wish.trust is not None:
                self._check_trust(plan.pf, index, wish.trust)

    def _turn_check_off(self, pf: str, index: int) -> None:
        """Turn spoof check off; raise ForbiddenError unless it is off now, or the NIC certainly did not change it."""

        def write() -> None:
            try:
                self.writer.write(pf, index, VfSettings(spoofchk=False))
            except OSError as error:
                if error.errno not in UNCHANGED_ERRORS:
                    raise

        self._set(pf, index, "spoofchk", write)

    def _check_trust(self, pf: str, index: int, wanted: bool) -> None:
        """Read trust back, as ADD does: a driver may report success without setting it (`write_again`)."""
        found = self.writer.read_all(pf).get(index)
        if found is not None and found.trust not in (None, wanted):
            raise ForbiddenError(f"{pf}: VF {index}: trust is {found.trust} after it was set to {wanted}")

    def _set(self, pf: str, index: int, names: str, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            name = errno_name(error)
            kind = NoSuchSettingError if error.errno in NO_SUCH_SETTING else ForbiddenError
            raise kind(f"{pf}: VF {index}: the NIC rejects {names} ({name})") from error

    def _bind(self, vf: str, plan: Plan) -> None:
        try:
            pci_driver.bind(self.roots.sysfs, vf, plan.driver)
        except OSError as error:
            why = f"driver {plan.driver!r} does not bind ({error.strerror}): check that its module is loaded"
            raise ForbiddenError(f"{plan.pf}: VF {vf}: {why}") from error

    def _device(self, pci: str) -> Path:
        return self.roots.sysfs / "bus/pci/devices" / pci


def mark_ready(run: Path, boot: str) -> None:
    """Record that this boot's VFs are prepared. Until then a CNI plugin that waits for `init` returns error 11."""
    write_file(run / READY, boot)


def _function(host: Host, pci: str) -> PciFunction:
    found = next((function for function in host.functions if function.address == pci), None)
    if found is None:
        raise ForbiddenError(f"{pci}: the PCI function is gone")
    return found


def _vf_addresses(function: PciFunction) -> list[str]:
    return [vf.address for vf in function.vfs.values() if vf.address is not None]


_write = pci_driver.write
