"""The NICs of simulated hosts on which one and the same test runs.

Each is a personality of `devcluster.hosts.personalities`, whose answers cite the functions of its driver. A simulated
host has mlx5 Ethernet by default. A test that runs on another NIC too has `ON_EACH`, and takes the NIC as ``nic``; in
the same module, one that is about the default alone has `ON_MLX5`: tests with one NIC share a host. What only other
drivers do is in tests/cni/test_personalities.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from devcluster.hosts.nic import Host, describe_host
from mooring.names import LinkType
from mooring.nic.settings import VfSettings


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC with two PFs: its personality, and what two VFs are requested with, all of which its driver takes.

    ``held`` are settings that a pod's VF may have, ``others`` what somebody else may change one of them to.
    """

    personality: str
    link: LinkType
    first_wishes: Mapping[str, Any]
    second_wishes: Mapping[str, Any]
    held: VfSettings
    others: VfSettings
    # What the PF holds of the second VF in the end, where that is more than what was wished.
    second_kept: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.personality

    @property
    def first(self) -> dict[str, Any]:
        """VF 1 of four of the first PF, as a pod record has it."""
        return {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3", "link": self.link, **self.first_wishes}

    @property
    def second(self) -> dict[str, Any]:
        """VF 0 of the second PF, under a name that the pod wishes."""
        named = {"pf": "enp4s0f1", "vf": 0, "pci": "0000:04:00.6", "link": self.link, "name": "rdma7"}
        return named | dict(self.second_wishes)

    def host(self, *, vfs: int) -> Host:
        """Describe a host with this NIC."""
        return describe_host("n1", 1, vfs=vfs, nics=[self.personality])


MLX5 = Nic(
    "mlx5-ethernet",
    "ethernet",
    {"min_tx_rate": 15000, "max_tx_rate": 20000, "vlan": 7},
    {"mac": "02:00:00:00:00:77"},
    VfSettings(5000, 8000, "02:00:00:00:00:01", 7, trust=True, link_state="enable"),
    VfSettings(5000, 6000),
    {"mac": "02:00:00:00:00:77"},
)
# A GUID takes effect when the VF's driver is bound again, which only the lab can do. A VF starts with the policy Down,
# and every pod's gets "auto" (mlx_to_net_policy in drivers/infiniband/hw/mlx5/ib_virt.c).
INFINIBAND = Nic(
    "mlx5-infiniband",
    "infiniband",
    {"link_state": "enable"},
    {},
    VfSettings(link_state="enable"),
    VfSettings(link_state="disable"),
    {"link_state": "auto"},
)
EACH = (
    pytest.param(MLX5, id="mlx5"),
    pytest.param(INFINIBAND, id="infiniband", marks=pytest.mark.other_nic),
)
ON_EACH = pytest.mark.parametrize("nic", EACH, indirect=True)
ON_MLX5 = pytest.mark.parametrize("nic", EACH[:1], indirect=True)
