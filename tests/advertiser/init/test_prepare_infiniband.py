"""What init does to PFs by their driver and link: rates, shares, InfiniBand, mlx4."""

import errno
from collections.abc import Iterable
from pathlib import Path

import pytest
import structlog

from advertiser.host.read_host import Roots
from advertiser.init.prepare_pf import PfPreparer
from advertiser.inventory.offer import Init, Offer, OfferEntry, Terms
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings
from mooring.records.node_offer import PfOffer, read_node_offer
from tests.advertiser.init.nics import FIRST, SECOND, Nic, TableNic, device, offer_of, prepared, unbound


class WithoutRates(Nic):
    """A ConnectX-3 whose firmware has no rates: mlx4_set_vf_rate answers EPROTONOSUPPORT, to 0/0 too."""

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        if settings.max_tx_rate is not None:
            raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")
        super().write(pf, vf, settings)


class InfinibandNic(TableNic):
    """Its netdevs are IPoIB's: no VF depends on their state or MTU, and they have no operation for rates."""

    def bring_up(self, pf: str) -> None:
        raise AssertionError(f"{pf} is brought up")

    def set_mtu(self, pf: str, mtu: int) -> None:
        raise AssertionError(f"{pf} gets mtu {mtu}")

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise AssertionError(f"rates of VFs {list(vfs)} of {pf} are cleared")


def test_an_infiniband_pf_without_its_rdma_device_is_one_that_cannot_be_prepared(roots: Roots) -> None:
    """The VFs' GUIDs are made from that device's; it may be in another network namespace."""
    netdev = next((device(roots, FIRST) / "net").iterdir())
    (netdev / "type").write_text("32\n")
    for gone in (device(roots, FIRST) / "infiniband").iterdir():
        gone.rename(roots.sysfs / gone.name)
    failures, done = prepared(roots)
    assert failures == [
        "enp4s0f0: its RDMA device is not in the host's network namespace, and its VFs' GUIDs derive from it"
    ]
    assert done == ["enp4s0f1"]


@pytest.mark.parametrize(("code", "failures"), [(errno.EOPNOTSUPP, 0), (errno.EIO, 2)])
def test_a_nic_without_rates_is_prepared_and_one_that_fails_is_named(roots: Roots, code: int, failures: int) -> None:
    """esw_qos_create answers EOPNOTSUPP on a device whose firmware schedules no VFs; no min can compete there."""

    class Refusing(Nic):
        def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
            raise OSError(code, "")

    said, _ = prepared(roots, Refusing())
    assert said == [f"enp4s0f{pf}: the NIC rejects rates 0/0 for its VFs (EIO)" for pf in range(failures)]


@pytest.fixture
def infiniband(tmp_path: Path) -> tuple[Roots, VfTable]:
    """A host with two InfiniBand PFs whose two VFs each have no driver yet."""
    return unbound(tmp_path, "mlx5-infiniband")


def test_a_share_is_for_pfs_that_take_rates(tmp_path: Path) -> None:
    """The host's PF of a BlueField refuses them all (mlx5_esw_allowed): with a share every ADD would fail."""
    for nic, share in (("mlx5-ethernet", 500), ("mlx5-bluefield", 0), ("ice", 0)):
        roots, _ = unbound(tmp_path / nic, nic)
        offer = Offer((OfferEntry((), Terms(default_share_mbps=500)),))
        assert PfPreparer(roots, Nic(), lambda *_: None).prepare_all(offer, "n1") == ()
        left = read_node_offer((roots.state / "offer.json").read_text())
        assert left == dict.fromkeys((FIRST, SECOND), PfOffer(share, network="default"))


@pytest.mark.parametrize(
    ("wishes", "state"),
    [
        (VfSettings(trust=False, spoofchk=True), "auto"),
        (VfSettings(), "auto"),
        (VfSettings(link_state="disable"), "disable"),
    ],
)
def test_an_infiniband_vf_gets_what_its_pf_takes(
    infiniband: tuple[Roots, VfTable], wishes: VfSettings, state: str
) -> None:
    """A GUID and a link state. A rule for all PFs may set trust and spoofchk; the PF is prepared without them."""
    roots, table = infiniband
    offer = offer_of(Init(2, wishes, mtu=9000), share=500)
    assert PfPreparer(roots, InfinibandNic(table), lambda *_: None).prepare_all(offer, "n1") == ()
    made = [*table.read_all("enp4s0f0").values(), *table.read_all("enp4s0f1").values()]
    assert [each.link_state for each in made] == [state] * 4
    assert len({each.guid for each in made} - {None}) == 4
    assert set(read_node_offer((roots.state / "offer.json").read_text()).values()) == {PfOffer(network="default")}


@pytest.mark.parametrize("nic", ["mlx5-ethernet", "mlx5-bluefield", "bnxt", "ice", "i40e", "mlx4", "hns3", "ionic"])
def test_an_offer_for_all_nics_prepares_those_of_every_driver(tmp_path: Path, nic: str) -> None:
    """Each VF gets what its PF takes: MAC and settings, and on the host of a BlueField the MAC alone.

    Whose switch another system manages answers EPERM to rates 0/0, trust, spoof check and link state
    (mlx5_esw_allowed); mlx4_netdev_ops_master has no trust.
    """
    roots, table = unbound(tmp_path, nic)
    before = table.read("enp4s0f0", 0)
    offer = Offer((OfferEntry((), Terms(init=Init(2, VfSettings(trust=True, spoofchk=True, link_state="enable")))),))
    assert PfPreparer(roots, TableNic(table), lambda *_: None).prepare_all(offer, "n1") == ()
    made = [table.read(pf, vf) for pf in ("enp4s0f0", "enp4s0f1") for vf in (0, 1)]
    assert len({each.mac for each in made} - {before.mac}) == 4
    expected = {"mlx5-bluefield": (False, False, "auto"), "mlx4": (None, True, "enable")}
    found = {(each.trust, each.spoofchk, each.link_state) for each in made}
    assert found == {expected.get(nic, (True, True, "enable"))}


def test_vfs_of_mlx4_on_infiniband_are_bound_as_they_are(tmp_path: Path) -> None:
    """mlx4_ib has no set_vf_guid and no set_vf_link_state: both, and what the offer names, are left out."""
    roots, table = unbound(tmp_path, "mlx4-infiniband")
    done: list[str] = []
    preparer = PfPreparer(roots, InfinibandNic(table), lambda pf, count, of: done.extend([pf] * (count == of)))
    with structlog.testing.capture_logs() as logs:
        assert preparer.prepare_all(offer_of(Init(2, VfSettings(link_state="enable", trust=True))), "n1") == ()
    assert done == ["enp4s0f0", "enp4s0f1"]
    assert {each["settings"] for each in logs if "settings" in each} == {"trust, link_state"}


def test_a_nic_without_rates_has_none_to_reset(roots: Roots) -> None:
    """mlx4 answers with another errno than the kernel does for a driver without the operation."""
    for physfn in (roots.sysfs / "bus/pci/devices").glob("*/physfn"):
        (physfn.parent / "driver").unlink()
        (physfn.parent / "driver_override").write_text("\n")
    assert prepared(roots, WithoutRates()) == ([], ["enp4s0f0", "enp4s0f1"])
