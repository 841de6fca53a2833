"""Read and write GUID and link state of InfiniBand VFs in sysfs, with NVIDIA's mlx5_core of MLNX_OFED and DOCA.

    /sys/bus/pci/devices/<PF>/sriov/<vf>/{node,port,policy}

Each VF has three files: node and port GUID as eight bytes with colons, and the policy Down, Up or Follow. They do not
depend on IPoIB, so a PF without a netdev stores settings there. Source: node_store, port_store, policy_store and
vf_ib_attrs in drivers/net/ethernet/mellanox/mlx5/core/sriov_sysfs.c of MLNX_OFED; each store calls
mlx5_core_modify_hca_vport_context, as mlx5_ib_set_vf_guid and mlx5_ib_set_vf_link_state do. The kernel's own mlx5_core
has no such files (Linux 6.12); there IPoIB's netdev is the only way (ipoib_set_vf_guid calls ib_set_vf_guid).
"""

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from mooring.nic.pci import is_pf_name, pf_address
from mooring.nic.settings import LinkState, VfSettings

FOLDER = "sriov"
# policy_str and strpolicy; for netlink mlx_to_net_policy in drivers/infiniband/hw/mlx5/ib_virt.c has the same mapping.
_POLICIES: Mapping[str, LinkState] = {"Down": "disable", "Up": "enable", "Follow": "auto"}
_NAMES = {state: policy for policy, state in _POLICIES.items()}
_UNSET = frozenset({"00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff"})


class SysfsVfSettings:
    """The settings in sysfs, for PFs that are named by their PCI address; ``sysfs`` is where /sys is mounted."""

    def __init__(self, sysfs: Path) -> None:
        self._devices = sysfs / "bus" / "pci" / "devices"

    def are_there(self, pf: str) -> bool:
        """Return whether a PF has these files for its VFs."""
        return is_pf_name(pf) and self._folder(pf).is_dir()

    def read(self, pf: str, vf: int) -> VfSettings:
        folder = self._folder(pf) / str(vf)
        guid = (folder / "node").read_text().strip()
        link_state = _POLICIES.get((folder / "policy").read_text().strip())
        return VfSettings(guid=None if guid in _UNSET else guid, link_state=link_state)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        vfs = sorted(int(folder.name) for folder in self._folder(pf).iterdir() if folder.name.isdecimal())
        return {vf: self.read(pf, vf) for vf in vfs}

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        """Set GUID and link state; raise OSError, for other settings EOPNOTSUPP before anything is changed."""
        if settings.to_fields().keys() - {"guid", "link_state"}:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        folder = self._folder(pf) / str(vf)
        if settings.link_state is not None:
            (folder / "policy").write_text(_NAMES[settings.link_state])
        if settings.guid is not None:
            for name in ("node", "port"):
                (folder / name).write_text(settings.guid)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        """Raise OSError with EOPNOTSUPP, because InfiniBand has no rates."""
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def _folder(self, pf: str) -> Path:
        return self._devices / pf_address(pf) / FOLDER
