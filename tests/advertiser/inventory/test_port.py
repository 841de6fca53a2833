"""Which netdev is the PF's own, and which mode its switch is in.

Names: __devlink_port_phys_port_name_get in net/devlink/port.c of Linux 6.12.
"""

from dataclasses import replace

import pytest

from advertiser.inventory.facts import EswitchMode, Netdev, PciFunction
from advertiser.inventory.port import is_in_switchdev, main_netdev, obstacle

UPLINK = Netdev("p0", type="1", dev_port="0", phys_port_name="p0", phys_switch_id="e61a3b0003a1420c")


def representor(port_name: str) -> Netdev:
    return replace(UPLINK, name=f"a{port_name}", phys_port_name=port_name)


@pytest.mark.parametrize("port_name", ["pf0vf0", "pf1sf88", "c1pf0vf3", "c1pf0sf4", "pf0", "c1pf0", "pf12"])
def test_a_representor_is_not_a_pf_and_tells_switchdev_mode(port_name: str) -> None:
    """It may stand for a VF, an SF, or (on a BlueField's ARM side) the host's PF, whatever its name sorts before."""
    function = PciFunction("0000:03:00.0", driver="mlx5_core", netdevs=(representor(port_name), UPLINK))
    assert main_netdev(function.netdevs) == UPLINK
    assert is_in_switchdev(function, None)
    assert main_netdev((representor(port_name),)) is None


@pytest.mark.parametrize("port_name", [None, "", "p0", "p1s2", "l1p0", "pf", "xpf0", "pf0vf", "0"])
def test_any_other_port_name_is_a_pfs_own(port_name: str | None) -> None:
    """A switch id beside it proves nothing: mlx5, ice and bnxt have one in legacy mode."""
    netdev = Netdev("eth0", type="1", phys_port_name=port_name, phys_switch_id="e61a3b0003a1420c")
    function = PciFunction("0000:03:00.0", driver="mlx5_core", netdevs=(netdev,))
    assert main_netdev(function.netdevs) == netdev
    assert obstacle(function, None) is None


@pytest.mark.parametrize(("mode", "expected"), [("legacy", False), ("switchdev", True)])
def test_what_devlink_says_comes_before_any_netdev(mode: EswitchMode, expected: bool) -> None:
    """Representors may be in another network namespace, or be left from a mode that is gone."""
    for netdevs in ((UPLINK,), (UPLINK, representor("pf0vf0"))):
        function = PciFunction("0000:03:00.0", driver="mlx5_core", netdevs=netdevs)
        assert is_in_switchdev(function, mode) is expected
        assert (obstacle(function, mode) == "the PF is in switchdev mode") is expected
