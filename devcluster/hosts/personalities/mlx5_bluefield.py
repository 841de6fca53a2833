"""mlx5_core on the host of a BlueField, whose ARM side manages the embedded switch.

Source: mlx5_esw_allowed in drivers/net/ethernet/mellanox/mlx5/core/eswitch.h, which is false here since the firmware
does not name this PF the manager (MLX5_CAP_GEN eswitch_manager). mlx5_eswitch_get_vport_config and
mlx5_eswitch_set_vport_mac do not ask it: VFs are listed, and a MAC is taken.
"""

import errno

from devcluster.hosts.personalities.mlx5_ethernet import Mlx5Ethernet
from devcluster.hosts.personalities.personality import Pf, Vf, refusal
from mooring.nic.settings import LinkState


class Mlx5Bluefield(Mlx5Ethernet):
    """A PF of a BlueField-2, seen by the host."""

    name = "mlx5-bluefield"
    device = "0xa2d6"
    # mlx5e_devlink_port_register gives a switch id to its manager alone.
    has_switch_id = False

    def set_vf_vlan(self, _pf: Pf, _vf: Vf, vlan: int, qos: int) -> None:
        """Refuse every VLAN; "no VLAN" is a success that does nothing (mlx5_eswitch_set_vport_vlan)."""
        if vlan:
            raise refusal(errno.EPERM, "vlan", (vlan, qos))

    def set_vf_rate(self, _pf: Pf, _vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Refuse any rates, those that are set already too (mlx5_eswitch_set_vport_rate)."""
        raise refusal(errno.EPERM, "rate", (min_tx_rate, max_tx_rate))

    def set_vf_spoofchk(self, _pf: Pf, _vf: Vf, *, spoofchk: bool) -> None:
        """Refuse either (mlx5_eswitch_set_vport_spoofchk)."""
        raise refusal(errno.EPERM, "spoofchk", spoofchk)

    def set_vf_link_state(self, _pf: Pf, _vf: Vf, link_state: LinkState) -> None:
        """Refuse any (mlx5_eswitch_set_vport_state)."""
        raise refusal(errno.EPERM, "link_state", link_state)

    def set_vf_trust(self, _pf: Pf, _vf: Vf, *, trust: bool) -> None:
        """Refuse either (mlx5_eswitch_set_vport_trust)."""
        raise refusal(errno.EPERM, "trust", trust)
