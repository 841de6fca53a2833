"""The VF settings of simulated PFs: what a real PF keeps in firmware and RTNETLINK sets, kept in vftable.json.

    {"v":1,"pfs":{"enp4s0f0":{"vfs":8,"link":"ethernet","refuse":["vlan"],"set":{"3":{"min_tx_rate":5000}}}}}

``set`` holds what differs from a fresh mlx5. A write goes setting by setting in the kernel's order, and the first
refusal ends it: what came before it stays set. Source: do_setvfinfo in net/core/rtnetlink.c (order, the check of both
rates, GUIDs on InfiniBand only); drivers/net/ethernet/mellanox/mlx5/core/esw (which values are refused). As there, the
sum of min rates is not checked, and an admin MAC does not reach the VF's netdev.

An InfiniBand PF takes a link state and GUIDs and refuses all else with EOPNOTSUPP (ipoib_netdev_ops_pf in
drivers/infiniband/ulp/ipoib/ipoib_main.c has no other ndo_set_vf_*), zeros too (rtnl_set_vf_rate).
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from devcluster.hosts.nic import Host
from mooring.files import write_file
from mooring.parsing import dump
from mooring.settings import MAX_QOS, MAX_VLAN, VfSettings
from mooring.vf_settings import reported_by_ipoib

ETHERNET = VfSettings(
    min_tx_rate=0,
    max_tx_rate=0,
    mac="00:00:00:00:00:00",
    vlan=0,
    qos=0,
    trust=False,
    spoofchk=False,
    link_state="auto",
)
# What the kernel answers (mlx5_ib_get_vf_config in drivers/infiniband/hw/mlx5/ib_virt.c): zeros for all that IPoIB has
# no operation for, and the port's policy. The policy is Down (0) until one is written: sriov_restore_guids in
# mlx5/core/sriov.c writes none by itself. ipoib_get_vf_config then copies the PF's own address to where a MAC is read:
# flags, queue pair, and the first bytes of its GID.
INFINIBAND = VfSettings(
    min_tx_rate=0,
    max_tx_rate=0,
    mac="00:00:10:87:fe:80",
    vlan=0,
    qos=0,
    trust=False,
    spoofchk=False,
    link_state="disable",
)
_IPOIB_TAKES = frozenset({"link_state", "guid"})
# What one netlink attribute carries is set together, attribute by attribute in this order.
_ATTRIBUTES = (
    ("mac",),
    ("vlan", "qos"),
    ("min_tx_rate", "max_tx_rate"),
    ("spoofchk",),
    ("link_state",),
    ("trust",),
    ("guid",),
)


class VfTable:
    """The VF settings of one host's PFs; any number of processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, pf: str, vf: int) -> VfSettings:
        """Return one VF's settings; raise OSError ENODEV for an unknown PF, EINVAL for an unknown VF."""
        return _reported(_pf(self._load(), pf), vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        """Return the settings of every VF of a PF."""
        found = _pf(self._load(), pf)
        return {vf: _reported(found, vf) for vf in range(found["vfs"])}

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        """Set what is not None; raise OSError with the kernel's errno, what came before the refusal being set."""
        with self._locked():
            document = self._load()
            found = _pf(document, pf)
            now = _settings(found, vf)
            try:
                for names in _ATTRIBUTES:
                    wanted = {name: value for name in names if (value := getattr(settings, name)) is not None}
                    if wanted:
                        now = _apply(found, now, wanted)
            finally:
                found["set"].pop(str(vf), None)
                if changed := _differences(now, found["link"]):
                    found["set"][str(vf)] = changed
                write_file(self._path, dump(document))

    def reset(self, host: Host) -> None:
        """Make the table as a boot leaves it: every VF of the host fresh."""
        pfs: dict[str, object] = {
            pf.name: {"vfs": pf.vfs, "link": pf.link, "refuse": list(pf.refuse), "set": {}} for pf in host.pfs
        }
        with self._locked():
            write_file(self._path, dump({"v": 1, "pfs": pfs}))

    def _load(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._path.read_text())
        return document

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _pf(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    if name not in document["pfs"]:
        raise _refusal(errno.ENODEV, f"pf {name!r}")
    found: dict[str, Any] = document["pfs"][name]
    return found


def _settings(pf: Mapping[str, Any], vf: int) -> VfSettings:
    if not 0 <= vf < pf["vfs"]:
        raise _refusal(errno.EINVAL, f"vf {vf!r}")
    return replace(_fresh(pf["link"]), **pf["set"].get(str(vf), {}))


def _reported(pf: Mapping[str, Any], vf: int) -> VfSettings:
    answer = _settings(pf, vf)
    return reported_by_ipoib(answer) if pf["link"] == "infiniband" else answer


def _fresh(link: str) -> VfSettings:
    return ETHERNET if link == "ethernet" else INFINIBAND


def _differences(settings: VfSettings, link: str) -> dict[str, object]:
    fresh = _fresh(link)
    return {name: value for name, value in settings.to_fields().items() if value != getattr(fresh, name)}


def _apply(pf: Mapping[str, Any], now: VfSettings, wanted: Mapping[str, Any]) -> VfSettings:
    for name, value in wanted.items():
        # Both rates travel in one attribute: an unchanged rate is not a request to the NIC.
        is_asked = not name.endswith("_tx_rate") or value != getattr(now, name)
        if name not in _known(pf["link"]) or (name in pf["refuse"] and is_asked):
            raise _refusal(errno.EOPNOTSUPP, f"{name} {value!r}")
    after = replace(now, **wanted)
    if not _is_valid(after):
        raise _refusal(errno.EINVAL, f"{dict(wanted)!r}")
    return after


def _known(link: str) -> frozenset[str]:
    return _IPOIB_TAKES if link == "infiniband" else frozenset(ETHERNET.to_fields())


def _is_valid(after: VfSettings) -> bool:
    multicast = after.mac is not None and int(after.mac[:2], 16) & 1
    low, high = after.min_tx_rate or 0, after.max_tx_rate or 0
    in_range = 0 <= (after.vlan or 0) <= MAX_VLAN + 1 and 0 <= (after.qos or 0) <= MAX_QOS
    return not multicast and in_range and not (high and high < low)


def _refusal(code: int, what: str) -> OSError:
    return OSError(code, os.strerror(code), what)
