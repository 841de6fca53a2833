"""Set a PF's netdev up and give it the MTU of the offer, as its VFs need.

An mlx5 PF that is down takes its port and the uplink's vport down, and with them the network of every VF (mlx5e_close
and mlx5e_modify_admin_state in the kernel's drivers/net/ethernet/mellanox/mlx5/core/en_main.c). A reload of the PF's
driver recreates its netdev, down and with the default MTU (mlx5_detach_device in mlx5/core/dev.c). So `init` also does
this for a PF that already has its VFs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import structlog

from advertiser.host.rtnetlink import host_uses, master_kind
from advertiser.init.vf_settings_writer import VfSettingsWriter
from advertiser.inventory.facts import PciFunction
from advertiser.inventory.init_plan import ForbiddenError, Plan
from mooring.files import read_file
from mooring.nic.function_devices import own_netdevs
from mooring.nic.pf_drivers import PF_MTU_LIMITS_VFS
from mooring.nic.refusals import errno_name

_IFF_UP = 0x1
_log = structlog.get_logger()


def bring_up(device: Path, pf: str, writer: VfSettingsWriter) -> None:
    """Set a PF's netdev up; ``device`` is the folder of its PCI function in sysfs. Raise ForbiddenError."""
    was_up = _is_up(device, pf)
    try:
        writer.bring_up(pf)
    except OSError as error:
        raise ForbiddenError(
            f"{pf}: the PF cannot be brought up ({errno_name(error)}); see the kernel's log"
        ) from error
    if was_up is False:
        _log.info("PF was down and is up now", pf=pf)


def set_mtu(device: Path, plan: Plan, writer: VfSettingsWriter) -> None:
    """Set the MTU of a PF's plan; warn if the host itself uses that link. Raise ForbiddenError."""
    before = mtu_of(device, plan.pf)
    if plan.mtu is None or plan.mtu == before:
        return
    if uses := host_uses(plan.pf):
        _log.warning("changing the MTU of a PF that the host uses", pf=plan.pf, mtu=plan.mtu, before=before, uses=uses)
    try:
        writer.set_mtu(plan.pf, plan.mtu)
    except OSError as error:
        raise ForbiddenError(f"{plan.pf}: the PF rejects mtu {plan.mtu} ({errno_name(error)})") from error


def with_team(function: PciFunction, pf: str, kind_of: Callable[[str], str | None] = master_kind) -> PciFunction:
    """Return the PF, with its netdev marked as bonded if it is a port of a team, which sysfs does not show.

    mlx5_core builds its LAG of bonds and teams (netif_is_lag_master in mlx5_handle_changeupper_event of lag/lag.c,
    Linux 6.12).
    """
    if kind_of(pf) != "team":
        return function
    netdevs = (replace(netdev, bonded=True) if netdev.name == pf else netdev for netdev in function.netdevs)
    return replace(function, netdevs=tuple(netdevs))


def warn_of_lost_frames(sysfs: Path, function: PciFunction, pf: str) -> None:
    """Warn about VFs on the host whose MTU exceeds their PF's: the port drops longer frames."""
    if function.driver not in PF_MTU_LIMITS_VFS:
        return
    devices = sysfs / "bus/pci/devices"
    limit = mtu_of(devices / function.address, pf)
    above = [f"{name} ({mtu})" for name, mtu in _vf_mtus(devices, function) if limit is not None and mtu > limit]
    if above:
        _log.warning("VFs have a larger MTU than their PF, which drops longer frames", pf=pf, mtu=limit, vfs=above)


def mtu_of(device: Path, netdev: str) -> int | None:
    """Return the MTU of a PCI function's netdev in bytes, None if it cannot be read."""
    text = (read_file(device / "net" / netdev / "mtu") or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _vf_mtus(devices: Path, function: PciFunction) -> Iterator[tuple[str, int]]:
    here = [devices / vf.address for _, vf in sorted(function.vfs.items()) if vf.address is not None and vf.netdev]
    for device in here:
        for name in own_netdevs(device):
            if (mtu := mtu_of(device, name)) is not None:
                yield name, mtu


def _is_up(device: Path, pf: str) -> bool | None:
    text = (read_file(device / "net" / pf / "flags") or "").strip()
    try:
        return bool(int(text, 16) & _IFF_UP)
    except ValueError:
        return None
