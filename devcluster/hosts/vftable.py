"""The VF settings of simulated PFs: what a real PF keeps in firmware and RTNETLINK sets, kept in vftable.json.

    {"v":1,"pfs":{"enp4s0f0":{"vfs":8,"link":"ethernet","nic":"mlx5-ethernet","address":"0c:…","mbps":100000,"mtu":1500,
     "total":8,"up":true,"present":true,"firmware_refuses":0,"refused_command":"","refuse":["vlan"],"own":{},"macs":{"0":"02:…"},"guids":{},"vf0":"0000:04:00.2","stride":1,
     "set":{"3":{"min_tx_rate":5000}}}}}

``address`` is the PF's permanent one. ``own`` are the addresses that the VFs' drivers chose, where the PF's reports
them, ``macs`` and ``guids`` what whoever made the VFs gave them. ``set`` holds what differs from a VF just made. What
nobody can read, which VFs an mlx5 NIC has enrolled in the scheduling of rates and their weights, is in vftable.weights
beside it: a VF that is given back as it was found stays enrolled.

What a PF's driver takes, refuses and answers is its personality's (`devcluster.hosts.personalities`); here is what the
kernel does for every driver. A write goes setting by setting in the kernel's order, and the first refusal ends it: what
came before it stays set. Both rates travel in one attribute, as do a VLAN and its priority: the half that is not given
is 0 (struct ifla_vf_rate and ifla_vf_vlan). Source: do_setvfinfo and rtnl_set_vf_rate in net/core/rtnetlink.c of Linux
6.12.
"""

import errno
import fcntl
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_int
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from devcluster.hosts import vf_reset
from devcluster.hosts.nic import Host
from devcluster.hosts.personalities.mlx5_ethernet import BW_SHARE
from devcluster.hosts.personalities.personality import NO_MAC, Personality, Pf, Vf, refusal, unsupported
from devcluster.hosts.personalities.registry import PERSONALITIES
from mooring.files import read_file, write_file
from mooring.nic.pci import vf_address
from mooring.nic.settings import VfSettings, reported_vlan
from mooring.nic.vf_settings import reported_by_ipoib
from mooring.parsing import dump

# How a PF answers about a VF just made.
ETHERNET, INFINIBAND = (
    PERSONALITIES[name].get_vf_config(Pf(1), PERSONALITIES[name].fresh(0))
    for name in ("mlx5-ethernet", "mlx5-infiniband")
)
_PF_FIELDS = ("vfs", "total", "mbps", "mtu", "up", "present", "firmware_refuses", "refused_command")
_RATES = ("min_tx_rate", "max_tx_rate")


class VfTable:
    """The VF settings of one host's PFs; any number of processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._weights = path.with_suffix(".weights")

    def read(self, pf: str, vf: int) -> VfSettings:
        """Return one VF's settings; raise OSError ENODEV for an unknown PF, EINVAL for an unknown VF."""
        listed = self.read_all(pf)
        if vf not in listed:
            raise refusal(errno.EINVAL, "vf", vf)
        return listed[vf]

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        """Return the settings of every VF of a PF; raise OSError EMSGSIZE where the driver leaves some out."""
        return self._listed(_Record(self._load(), pf))

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        """Set what is not None; raise OSError with the kernel's errno, what came before the refusal being set."""
        with self._changing(pf) as found:
            changed = found.vf(vf)
            found.pf.others = [found.vf(number) for number in range(found.pf.vfs) if number != vf]
            try:
                _set_in_order(found, changed, settings)
            finally:
                for each in (changed, *found.pf.others):
                    found.keep(each)
                found.begin_resets(self._path.parent.parent / "sys")

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        """Set both rates of VFs to 0."""
        for vf in vfs:
            self.write(pf, vf, VfSettings(min_tx_rate=0, max_tx_rate=0))

    def node_guid(self, pf: str, vf: int) -> str:
        """Return the node GUID that a VF of an mlx5 PF reads when its driver is bound."""
        found = _Record(self._load(), pf)
        return found.personality.node_guid(found.vf(vf), NO_MAC)

    def weights(self, pf: str) -> dict[int, int]:
        """Return the weight of each VF of an mlx5 PF that takes part in the scheduling of rates."""
        weights: dict[str, int] = self._load_weights().get(pf, {})
        return {int(vf): weight for vf, weight in weights.items()}

    def reset(self, host: Host, *, admin_macs: bool = False) -> None:
        """Make the table as a boot leaves it: every VF of the host fresh.

        ``admin_macs``: each Ethernet VF was given its netdev's MAC before its driver was bound, as `init` does. One
        whose PF reports its own address has no other. An InfiniBand VF was given its GUID likewise.
        """
        pfs: dict[str, dict[str, object]] = {}
        for pf in host.pfs:
            state = asdict(Pf(pf.vfs, pf.mbps, total=pf.total))
            nic: dict[str, object] = {"link": pf.link, "nic": pf.personality.name, "vf0": pf.vf0, "stride": pf.stride}
            nic |= {"refuse": list(pf.refuse), "own": {}, "macs": {}, "guids": {}, "set": {}}
            pfs[pf.name] = nic | {name: state[name] for name in _PF_FIELDS}
        for function in host.functions():
            if function.vf is None:
                pfs[function.pf.name]["address"] = function.mac
            reports_own = function.pf.personality.reports_own_mac
            has_admin_mac = admin_macs and function.pf.link == "ethernet" and not reports_own
            own, admin = (function.mac if is_so else None for is_so in (reports_own, has_admin_mac))
            guid = function.admin_guid if admin_macs else None
            for name, address in (("own", own), ("macs", admin), ("guids", guid)):
                addresses = pfs[function.pf.name][name]
                if function.vf is not None and address is not None and isinstance(addresses, dict):
                    addresses[str(function.vf)] = address
        with self._locked():
            write_file(self._path, dump({"v": 1, "pfs": pfs}))
            write_file(self._weights, dump({}))

    def checks_macs(self, pf: str, vf: int) -> bool:
        """Return whether the NIC drops a VF's frames with a foreign source MAC, whatever its driver reports."""
        found = _Record(self._load(), pf).vf(vf)
        return found.spoofchk and not found.unchecked

    def sriov_configure(self, pf: str, wanted: int) -> int:
        """Ask a PF's driver for VFs, as a write to sriov_numvfs does; return how many were made, or raise OSError.

        Source: sriov_numvfs_store in drivers/pci/iov.c.
        """
        with self._changing(pf) as found:
            if wanted > found.pf.total:
                raise refusal(errno.ERANGE, "sriov_numvfs", wanted)
            if wanted == found.pf.vfs:
                return wanted
            made = found.personality.sriov_configure(found.pf, wanted)
            if found.pf.vfs != found.fields["vfs"]:
                found.forget_vfs(found.fields["vfs"])
                with found.every_vf() as vfs:
                    for vf in vfs:
                        found.personality.make(found.pf, vf)
            return made

    def bind(self, pf: str, vf: int, netdev_mac: str) -> tuple[str, str]:
        """Take in that a VF's driver was bound; return its node GUID, and its netdev's MAC.

        That is the admin MAC, or ``netdev_mac`` without one: what the VF's driver then chooses.
        """
        with self._changing(pf) as found:
            bound = found.vf(vf)
            found.personality.bind(found.pf, bound)
            found.keep(bound)
            mac = bound.mac if bound.mac != NO_MAC else netdev_mac
            return found.personality.node_guid(bound, mac), mac

    def set_up(self, pf: str, *, up: bool) -> None:
        """Open or close a PF's netdev."""
        with self._changing(pf) as found, found.every_vf() as vfs:
            found.personality.set_up(found.pf, vfs, up=up)

    def permanent_address(self, pf: str) -> str | None:
        """Return a PF's permanent MAC, as RtnetlinkVfSettings does."""
        address: str = _Record(self._load(), pf).fields["address"]
        return address

    def bring_up(self, pf: str) -> None:
        """Open a PF's netdev, as RtnetlinkVfSettings does."""
        self.set_up(pf, up=True)

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        """Set a VF's node and port GUID on InfiniBand, as RtnetlinkVfSettings does."""
        self.write(pf, vf, VfSettings(guid=guid))

    def reload(self, pf: str) -> None:
        """Reload a PF's driver or recover its firmware, its VFs staying."""
        with self._changing(pf) as found, found.every_vf() as vfs:
            found.personality.reload(found.pf, vfs)

    def change_pf(self, pf: str, **values: object) -> None:
        """Set fields of a PF that change by themselves or by another: ``mbps``, ``present``, ``firmware_refuses``, …"""
        with self._changing(pf) as found:
            for name, value in values.items():
                setattr(found.pf, name, value)

    def _listed(self, found: "_Record") -> dict[int, VfSettings]:
        """Return what the kernel lists: VFs that the driver does not answer for are missing (rtnl_fill_vfinfo)."""
        listed: dict[int, VfSettings] = {}
        for vf in range(found.pf.vfs):
            try:
                answer = found.personality.get_vf_config(found.pf, found.vf(vf))
            except OSError:
                continue
            answer = replace(answer, vlan=reported_vlan(answer.vlan))
            listed[vf] = reported_by_ipoib(answer) if found.personality.link == "infiniband" else answer
        if len(listed) < found.pf.vfs:
            raise refusal(errno.EMSGSIZE, "listed vfs", len(listed))
        return listed

    def _load(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._path.read_text())
        return document

    def _load_weights(self) -> dict[str, dict[str, int]]:
        weights: dict[str, dict[str, int]] = json.loads(read_file(self._weights) or "{}")
        return weights

    @contextmanager
    def _changing(self, pf: str) -> Iterator["_Record"]:
        """Lock the table while a PF is changed; what was changed is written, whatever is raised."""
        with self._locked():
            document, weights = self._load(), self._load_weights()
            found = _Record(document, pf, weights.setdefault(pf, {}))
            before = dict(found.weights)
            try:
                yield found
            finally:
                found.store()
                write_file(self._path, dump(document))
                if found.weights != before:
                    write_file(self._weights, dump(weights))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class _Record:
    """One PF of the table: its fields as stored, and what they mean."""

    def __init__(self, document: Mapping[str, Any], name: str, weights: dict[str, int] | None = None) -> None:
        if name not in document["pfs"]:
            raise refusal(errno.ENODEV, "pf", name)
        self.fields: dict[str, Any] = document["pfs"][name]
        self.personality: Personality = PERSONALITIES[self.fields["nic"]]
        self.weights = {} if weights is None else weights
        self.pf = Pf(**{field: self.fields[field] for field in _PF_FIELDS})

    def vf(self, number: int) -> Vf:
        if not 0 <= number < self.personality.vfs_with_settings(self.pf):
            raise refusal(errno.EINVAL, "vf", number)
        found = self._fresh(number)
        for name, value in self.fields["set"].get(str(number), {}).items():
            setattr(found, name, value)
        if str(number) in self.weights:
            found.kept[BW_SHARE] = self.weights[str(number)]
        return found

    def begin_resets(self, sys: Path) -> None:
        """Reset those VFs whose settings made the driver do so; ``sys`` is the host's tree, if it has one."""
        for number in self.pf.reset:
            vf_reset.begin(sys, vf_address(self.fields["vf0"], self.fields["stride"], number))

    def forget_vfs(self, before: int) -> None:
        """Forget the settings of the VFs that there were, and of all whose driver keeps none of others."""
        if self.personality.keeps_settings:
            return
        for kept in (self.fields["set"], self.weights):
            for number in [*kept]:
                if int(number) < before or int(number) >= self.personality.vfs_with_settings(self.pf):
                    del kept[number]

    @contextmanager
    def every_vf(self) -> Iterator[list[Vf]]:
        vfs = [self.vf(number) for number in range(self.pf.vfs)]
        yield vfs
        for vf in vfs:
            self.keep(vf)

    def keep(self, vf: Vf) -> None:
        """Store what differs from a fresh VF."""
        self.weights.pop(str(vf.number), None)
        if isinstance(weight := vf.kept.pop(BW_SHARE, None), int):
            self.weights[str(vf.number)] = weight
        fresh = self._fresh(vf.number)
        names = [field.name for field in fields(Vf) if getattr(vf, field.name) != getattr(fresh, field.name)]
        self.fields["set"].pop(str(vf.number), None)
        if names:
            self.fields["set"][str(vf.number)] = {name: getattr(vf, name) for name in names}

    def store(self) -> None:
        self.fields.update({name: getattr(self.pf, name) for name in _PF_FIELDS})

    def _fresh(self, number: int) -> Vf:
        own = self.fields["own"].get(str(number))
        fresh = self.personality.fresh(number, own) if own is not None else self.personality.fresh(number)
        fresh.mac = self.fields["macs"].get(str(number), fresh.mac)
        fresh.guid = self.fields["guids"].get(str(number), fresh.guid)
        return fresh


def _set_in_order(found: _Record, vf: Vf, wanted: VfSettings) -> None:
    """Set attribute by attribute, in do_setvfinfo's order."""
    for name in ("mac", "vlan", "rate", "spoofchk", "link_state", "trust", "guid"):
        names = {"vlan": ("vlan", "qos"), "rate": _RATES}.get(name, (name,))
        values = [getattr(wanted, each) for each in names]
        if any(value is not None for value in values):
            _refuse_configured(found, vf, names, values)
            _OPERATIONS[name](found, vf, values)


def _refuse_configured(found: _Record, vf: Vf, names: tuple[str, ...], values: list[Any]) -> None:
    """Refuse what the host's description says; an unchanged rate is not a request to the NIC."""
    for name, value in zip(names, values, strict=True):
        is_asked = value is not None and (name not in _RATES or value != getattr(vf, name))
        if name in found.fields["refuse"] and is_asked:
            raise unsupported(name, value)


def _set_rate(found: _Record, vf: Vf, values: list[Any]) -> None:
    """Check the rates against each other where the driver has the operation (rtnl_set_vf_rate), and set both."""
    # They are ints there, and u32 in the message.
    low, high = (c_int(value or 0).value for value in values)
    if type(found.personality).set_vf_rate is Personality.set_vf_rate:
        raise unsupported("rate", (low, high))
    if high and high < low:
        raise refusal(errno.EINVAL, "rate", (low, high))
    found.personality.set_vf_rate(found.pf, vf, low, high)


_OPERATIONS: Mapping[str, Callable[[_Record, Vf, list[Any]], None]] = {
    "mac": lambda found, vf, values: found.personality.set_vf_mac(found.pf, vf, values[0]),
    "vlan": lambda found, vf, values: found.personality.set_vf_vlan(found.pf, vf, values[0] or 0, values[1] or 0),
    "rate": _set_rate,
    "spoofchk": lambda found, vf, values: found.personality.set_vf_spoofchk(found.pf, vf, spoofchk=values[0]),
    "link_state": lambda found, vf, values: found.personality.set_vf_link_state(found.pf, vf, values[0]),
    "trust": lambda found, vf, values: found.personality.set_vf_trust(found.pf, vf, trust=values[0]),
    "guid": lambda found, vf, values: found.personality.set_vf_guid(found.pf, vf, values[0]),
}
