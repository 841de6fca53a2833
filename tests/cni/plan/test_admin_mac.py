"""Which admin MAC a VF is given back where its PF's driver reports the VF's own."""

import pytest

from cni.plan.admin_mac import was_own
from mooring.nic.settings import VfSettings
from mooring.nic.vf_addresses import vf_mac
from mooring.records.ledger import Original

PF_MAC, OWN, OTHER = "0c:42:a1:00:01:00", "02:00:01:00:00:00", "02:00:00:00:00:77"


@pytest.mark.parametrize(
    ("driver", "mac", "own"),
    [
        ("ice", OWN, True),
        ("i40e", OWN, True),
        ("bnxt_en", OWN, True),
        # Somebody set another one, which the netdev does not have yet.
        ("ice", OTHER, False),
        # These report an admin MAC, and nothing else.
        ("mlx5_core", OWN, False),
        ("hns3", OWN, False),
        ("ice", None, False),
    ],
)
def test_a_mac_that_the_driver_reports_of_the_vf_itself_is_not_an_admin_mac(
    driver: str, mac: str | None, own: bool
) -> None:
    """Set as the admin MAC, it would be one that the VF may not change any more."""
    assert was_own(Original(netdev_mac=OWN, settings=VfSettings(mac=mac)), driver, PF_MAC, 0) is own


def test_a_mac_that_init_made_is_an_admin_mac() -> None:
    """The VF has it since its driver was bound; it is known by how it is made, for that VF only."""
    made = vf_mac(PF_MAC, 3)
    original = Original(netdev_mac=made, settings=VfSettings(mac=made))
    assert not was_own(original, "ice", PF_MAC, 3)
    assert was_own(original, "ice", PF_MAC, 2)
