"""`init` on a tree of files: what one PF meets stays that PF's own, and leaves nothing behind."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import structlog

from advertiser.host.read_host import Roots
from advertiser.init import pci_driver, prepare_pf
from advertiser.init.prepare_pf import PfPreparer
from advertiser.inventory.facts import EswitchMode
from advertiser.inventory.offer import EVERYTHING, Init, Offer, OfferEntry, Terms
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.indexes import Indexes
from mooring.inventory import Allow
from mooring.locks import hold
from mooring.node_offer import PfOffer, read_node_offer
from mooring.run_folder import PREPARING
from mooring.settings import VfSettings

FIRST, SECOND = "0000:04:00.0", "0000:04:00.1"
# A file of the kernel's that can be opened, and refuses to be written.
REFUSES = Path("/proc/version")


class Nic:
    """Takes every setting, and keeps a list."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.found: dict[int, VfSettings] = {}
        self.brought_up: list[str] = []
        self.mtus: dict[str, int] = {}
        self.rates: dict[str, dict[int, VfSettings]] = {}
        self.cleared: list[tuple[str, list[int]]] = []

    def bring_up(self, pf: str) -> None:
        self.brought_up.append(pf)

    def set_mtu(self, pf: str, mtu: int) -> None:
        self.mtus[pf] = mtu

    def read_all(self, pf: str) -> dict[int, VfSettings]:
        return self.rates.get(pf, self.found)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self.cleared.append((pf, list(vfs)))

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self.told.append((pf, vf))

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        self.told.append((pf, vf))


class Bnxt(Nic):
    """The PFs of bnxt_en, of Linux 6.12: what becomes of a number written to sriov_numvfs.

    While the PF is down, bnxt_sriov_configure answers 0, which is success, and changes nothing. bnxt_sriov_enable makes
    as many VFs as there are rings for, and its error is dropped. sriov_numvfs_store only logs fewer.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def sriov_configure(self, path: Path, text: str) -> None:
        if path.name == "sriov_numvfs" and {entry.name for entry in (path.parent / "net").iterdir()} & {
            *self.brought_up
        }:
            path.write_text(f"{min(int(text), self._room)}\n")
        elif path.name != "sriov_numvfs":
            path.write_text(text)


class Closed(Nic):
    """A PF that its driver does not open: firmware is being updated, for instance."""

    def bring_up(self, pf: str) -> None:
        raise OSError(errno.EIO, "Input/output error")


class Renamed(Nic):
    """A PF that udev renames between its reading and the first request to its netdev."""

    def __init__(self, netdevs: Path, name: str) -> None:
        super().__init__()
        self._netdevs = netdevs
        self._name = name

    def bring_up(self, pf: str) -> None:
        if not (self._netdevs / self._name).exists():
            next(self._netdevs.iterdir()).rename(self._netdevs / self._name)
        if not (self._netdevs / pf).exists():
            raise OSError(errno.ENODEV, "No such device")
        super().bring_up(pf)


class WithoutRates(Nic):
    """A ConnectX-3 whose firmware has no rates: mlx4_set_vf_rate answers EPROTONOSUPPORT, to 0/0 too."""

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        if settings.max_tx_rate is not None:
            raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")
        super().write(pf, vf, settings)


class TableNic:
    """The VF table of PFs: it takes what their drivers take."""

    def __init__(self, table: VfTable) -> None:
        self.table = table

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self.table.write(pf, vf, settings)

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        self.table.write(pf, vf, VfSettings(guid=guid))

    def bring_up(self, pf: str) -> None:
        self.table.set_up(pf, up=True)

    def set_mtu(self, pf: str, mtu: int) -> None:
        self.table.change_pf(pf, mtu=mtu)

    def read_all(self, pf: str) -> dict[int, VfSettings]:
        return dict(self.table.read_all(pf))

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self.table.clear_rates(pf, vfs)


class InfinibandNic(TableNic):
    """Its netdevs are IPoIB's: no VF depends on their state or MTU, and they have no operation for rates."""

    def bring_up(self, pf: str) -> None:
        raise AssertionError(f"{pf} is brought up")

    def set_mtu(self, pf: str, mtu: int) -> None:
        raise AssertionError(f"{pf} gets mtu {mtu}")

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise AssertionError(f"rates of VFs {list(vfs)} of {pf} are cleared")


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host with two PFs whose two VFs have their drivers already: init finds nothing to make."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=2), admin_macs=True)
    roots = Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run")
    for pf in (FIRST, SECOND):
        (device(roots, pf) / "sriov_drivers_autoprobe").write_text("1\n")
        (next((device(roots, pf) / "net").iterdir()) / "address").write_text("0c:42:a1:12:34:56\n")
    return roots


def device(roots: Roots, pci: str) -> Path:
    return roots.sysfs / "bus/pci/devices" / pci


def prepared(roots: Roots, nic: Nic | None = None) -> tuple[list[str], list[str]]:
    """Return what could not be prepared, as text, and the PFs of which every VF was counted."""
    done: list[str] = []
    offer = Offer((OfferEntry((), Terms(init=Init(2))),))
    preparer = PfPreparer(roots, nic or Nic(), lambda pf, count, of: done.extend([pf] * (count == of)))
    return [str(failure) for failure in preparer.prepare_all(offer, "n1")], done


def test_nothing_is_done_to_a_host_that_has_what_it_should(roots: Roots) -> None:
    """Both PFs are examined, autoprobe is as it was, no marker is left."""
    assert prepared(roots) == ([], ["enp4s0f0", "enp4s0f1"])
    assert (device(roots, FIRST) / "sriov_drivers_autoprobe").read_text().strip() == "1"
    assert list((roots.run / PREPARING).iterdir()) == []


def test_an_offer_without_init_prepares_nothing(roots: Roots) -> None:
    """Settings that the operator did not configure are not touched."""
    assert PfPreparer(roots, Nic(), lambda *_: None).prepare_all(EVERYTHING, "n1") == ()
    assert not (roots.run / PREPARING).exists()


def test_a_pf_that_devlink_says_is_in_switchdev_mode_is_not_prepared(roots: Roots) -> None:
    """The other one is; of the first nothing was changed."""

    def modes(_: Path, addresses: Iterable[str]) -> dict[str, EswitchMode]:
        return {address: "switchdev" if address == FIRST else "legacy" for address in addresses}

    nic, done = Nic(), []
    offer = Offer((OfferEntry((), Terms(init=Init(1))),))
    (failure,) = PfPreparer(roots, nic, lambda pf, *_: done.append(pf), modes).prepare_all(offer, "n1")
    assert str(failure).startswith("enp4s0f0: the PF is in switchdev mode")
    assert (device(roots, FIRST) / "sriov_numvfs").read_text() == "2\n"
    assert done == ["enp4s0f1"]


def test_a_pf_that_the_kernel_refuses_is_on_offer_as_before(roots: Roots) -> None:
    """The PF's marker is removed, or its VFs would be published as preparing for ever. The other PF is prepared."""
    autoprobe = device(roots, FIRST) / "sriov_drivers_autoprobe"
    autoprobe.unlink()
    autoprobe.symlink_to(REFUSES)
    failures, done = prepared(roots)
    (failure,) = failures
    assert failure.startswith("enp4s0f0: the kernel refused sriov_drivers_autoprobe 0 (EIO): ")
    assert done == ["enp4s0f1"]
    assert list((roots.run / PREPARING).iterdir()) == []


def test_a_pf_whose_lock_stays_held_is_one_that_cannot_be_prepared(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the PF; the other one is prepared."""
    monkeypatch.setattr(prepare_pf, "_LOCK_S", 0.05)
    with hold(roots.run, FIRST, 1):
        failures, done = prepared(roots)
    assert failures == [f"the lock of '{FIRST}' is held by another call"]
    assert done == ["enp4s0f1"]


def test_an_infiniband_pf_without_its_rdma_device_is_one_that_cannot_be_prepared(roots: Roots) -> None:
    """The VFs' GUIDs are made from that device's; it may be in another network namespace."""
    netdev = next((device(roots, FIRST) / "net").iterdir())
    (netdev / "type").write_text("32\n")
    for gone in (device(roots, FIRST) / "infiniband").iterdir():
        gone.rename(roots.sysfs / gone.name)
    failures, done = prepared(roots)
    assert failures == ["enp4s0f0: no RDMA device in the host's network namespace, from which its VFs' GUIDs are made"]
    assert done == ["enp4s0f1"]


def test_a_pf_that_udev_renames_meanwhile_is_prepared_under_its_new_name(roots: Roots) -> None:
    """At a boot `init` may be there before udev: the PF is found again by its PCI address."""
    nic = Renamed(device(roots, FIRST) / "net", "ens1f0np0")
    preparer = PfPreparer(roots, nic, lambda *_: None)
    offer = Offer((OfferEntry((("pci", FIRST),), Terms(init=Init(2))),))
    assert preparer.prepare_all(offer, "n1") == ()
    assert nic.brought_up == ["ens1f0np0"]


@pytest.fixture
def without_vfs(roots: Roots) -> Roots:
    """The same host before its VFs were made."""
    for pf in (FIRST, SECOND):
        (device(roots, pf) / "sriov_numvfs").write_text("0\n")
    return roots


def test_a_pf_is_up_before_its_vfs_are_made(without_vfs: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """bnxt_en makes none on a PF that is down, and reports success."""
    nic = Bnxt(room=2)
    monkeypatch.setattr(prepare_pf, "_write", nic.sriov_configure)
    assert prepared(without_vfs, nic) == ([], ["enp4s0f0", "enp4s0f1"])
    assert (device(without_vfs, FIRST) / "sriov_numvfs").read_text() == "2\n"


@pytest.mark.parametrize("room", [0, 1])
def test_a_driver_that_makes_fewer_vfs_without_an_error_is_named(
    without_vfs: Roots, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """The VFs that are there are not those that the offer counts on: the PF is not prepared."""
    nic = Bnxt(room)
    monkeypatch.setattr(prepare_pf, "_write", nic.sriov_configure)
    failures, done = prepared(without_vfs, nic)
    assert [failure.partition(": it has")[0] for failure in failures] == [
        f"enp4s0f{index}: the driver 'mlx5_core' took sriov_numvfs 2 without an error, and made {room}"
        for index in (0, 1)
    ]
    assert done == []


def test_a_pf_that_cannot_be_brought_up_makes_no_vfs(without_vfs: Roots) -> None:
    """The error names the PF, with the kernel's reason."""
    failures, _ = prepared(without_vfs, Closed())
    assert failures[0].startswith("enp4s0f0: the PF cannot be brought up (EIO)")
    assert (device(without_vfs, FIRST) / "sriov_numvfs").read_text() == "0\n"


def test_a_pf_that_has_its_vfs_is_brought_up_too(roots: Roots) -> None:
    """A closed mlx5 PF has its port down: the VFs that pods have would stay without a network."""
    nic = Nic()
    assert prepared(roots, nic) == ([], ["enp4s0f0", "enp4s0f1"])
    assert nic.brought_up == ["enp4s0f0", "enp4s0f1"]


def offer_of(init: Init, share: int = 0) -> Offer:
    return Offer((OfferEntry((), Terms(init=init, default_share_mbps=share)),))


def test_every_vf_without_a_rate_is_enrolled_and_one_with_a_rate_is_left_alone(roots: Roots) -> None:
    """One message a PF, before anything is written to a single VF; a VF that a pod has is enrolled too."""
    nic = Nic()
    nic.rates = {
        "enp4s0f0": {0: VfSettings(0, 0), 1: VfSettings(0, 0)},
        "enp4s0f1": {0: VfSettings(0, 500), 1: VfSettings(0, 0)},
    }
    assert prepared(roots, nic)[0] == []
    assert nic.cleared == [("enp4s0f0", [0, 1]), ("enp4s0f1", [1])]


@pytest.mark.parametrize(("code", "failures"), [(errno.EOPNOTSUPP, 0), (errno.EIO, 2)])
def test_a_nic_without_rates_is_prepared_and_one_that_fails_is_named(roots: Roots, code: int, failures: int) -> None:
    """esw_qos_create answers EOPNOTSUPP on a device whose firmware schedules no VFs; no min can compete there."""

    class Refusing(Nic):
        def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
            raise OSError(code, "")

    said, _ = prepared(roots, Refusing())
    assert said == [f"enp4s0f{pf}: the NIC refuses rates 0/0 for its VFs (EIO)" for pf in range(failures)]


def test_a_pf_gets_the_mtu_of_the_offer_and_another_one_keeps_its_own(roots: Roots) -> None:
    """It is written only where it differs."""
    (device(roots, FIRST) / "net/enp4s0f0/mtu").write_text("9000\n")
    nic = Nic()
    preparer = PfPreparer(roots, nic, lambda *_: None)
    assert preparer.prepare_all(offer_of(Init(2)), "n1") == ()
    assert nic.mtus == {}
    assert preparer.prepare_all(offer_of(Init(2, mtu=9000)), "n1") == ()
    assert nic.mtus == {"enp4s0f1": 9000}


def test_a_pf_that_refuses_its_mtu_is_not_prepared(roots: Roots) -> None:
    class Small(Nic):
        def set_mtu(self, pf: str, mtu: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    (failure, _) = PfPreparer(roots, Small(), lambda *_: None).prepare_all(offer_of(Init(2, mtu=65000)), "n1")
    assert str(failure) == "enp4s0f0: the PF refuses mtu 65000 (EINVAL)"


def test_vfs_with_a_larger_mtu_than_their_pf_are_named(roots: Roots) -> None:
    """The offer names no MTU, and the PF may be the host's own link: nothing is changed."""
    for netdev, mtu in ((FIRST, 1500), ("0000:04:00.2", 9000), ("0000:04:00.3", 1500)):
        (next((device(roots, netdev) / "net").iterdir()) / "mtu").write_text(f"{mtu}\n")
    with structlog.testing.capture_logs() as logs:
        assert prepared(roots)[0] == []
    (warning,) = [each for each in logs if each["log_level"] == "warning"]
    assert warning["event"] == "frames of VFs are lost: their MTU is above their PF's"
    assert (warning["pf"], warning["mtu"], warning["vfs"]) == ("enp4s0f0", 1500, ["enp4s0f0v0 (9000)"])


def test_the_nodes_part_of_the_offer_is_left_for_add(roots: Roots) -> None:
    """With or without `init`, and all that bounds an assignment; another offer takes the last one's place whole."""
    preparer = PfPreparer(roots, Nic(), lambda *_: None)
    allow, aside = Allow(Indexes.of([7]), mac=True, trust=True), Indexes.of([1])
    first = Terms("rail0", aside, keep_percent=10, allow=allow, default_share_mbps=500, init=Init(2))
    offer = Offer((OfferEntry((("pci", SECOND),), Terms("rail1", vlan=200)), OfferEntry((), first)))
    assert preparer.prepare_all(offer, "n1") == ()
    path = roots.state / "offer.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_node_offer(path.read_text()) == {
        FIRST: PfOffer(500, network="rail0", set_aside=aside, keep_percent=10, allow=allow),
        SECOND: PfOffer(network="rail1", vlan=200),
    }
    assert preparer.prepare_all(EVERYTHING, "n1") == ()
    plain = PfOffer(network="default")
    assert read_node_offer(path.read_text()) == {FIRST: plain, SECOND: plain}
    assert preparer.prepare_all(Offer((OfferEntry((("pci", SECOND),), None), *EVERYTHING.entries)), "n1") == ()
    assert read_node_offer(path.read_text()) == {FIRST: plain}


def test_an_offer_that_stays_as_it_is_keeps_its_time(roots: Roots) -> None:
    """ADD takes the file's time for that of the last change: each boot runs `init`."""
    preparer, path = PfPreparer(roots, Nic(), lambda *_: None), roots.state / "offer.json"
    assert preparer.prepare_all(EVERYTHING, "n1") == ()
    os.utime(path, (1000, 1000))
    assert preparer.prepare_all(EVERYTHING, "n1") == ()
    assert path.stat().st_mtime == 1000
    assert preparer.prepare_all(Offer((OfferEntry((), Terms("rail0")),)), "n1") == ()
    assert path.stat().st_mtime > 1000


def test_a_pf_that_init_does_not_prepare_is_looked_at_too(roots: Roots) -> None:
    """It is on offer all the same: without an `init` entry the operator would never hear of lost frames."""
    for netdev, mtu in ((FIRST, 1500), ("0000:04:00.2", 9000)):
        (next((device(roots, netdev) / "net").iterdir()) / "mtu").write_text(f"{mtu}\n")
    with structlog.testing.capture_logs() as logs:
        assert PfPreparer(roots, Nic(), lambda *_: None).prepare_all(EVERYTHING, "n1") == ()
    (warning,) = [each for each in logs if each["log_level"] == "warning"]
    assert (warning["pf"], warning["vfs"]) == ("enp4s0f0", ["enp4s0f0v0 (9000)"])


def test_a_vf_that_the_operator_keeps_for_another_driver_is_left_alone(tmp_path: Path) -> None:
    """Its driver_override says so: it gets neither settings nor a driver, and the override stays."""
    roots, _ = unbound(tmp_path, "mlx5-ethernet")
    kept = device(roots, "0000:04:00.2") / "driver_override"
    kept.write_text("vfio-pci\n")
    nic = Nic()
    assert prepared(roots, nic)[0] == []
    assert kept.read_text() == "vfio-pci\n"
    assert ("enp4s0f0", 0) not in nic.told
    assert ("enp4s0f0", 1) in nic.told
    assert (device(roots, "0000:04:00.3") / "driver_override").read_text() == "\n"


def test_a_bind_restores_the_override_that_it_found(roots: Roots) -> None:
    """One of another driver is the operator's; one that names this driver is an `init`'s that was killed."""
    override = device(roots, "0000:04:00.2") / "driver_override"
    for found, left in (("vfio-pci", "vfio-pci"), ("mlx5_core", "\n"), ("(null)", "\n")):
        override.write_text(f"{found}\n")
        pci_driver.bind(roots.sysfs, "0000:04:00.2", "mlx5_core")
        assert override.read_text() == left


@pytest.fixture
def infiniband(tmp_path: Path) -> tuple[Roots, VfTable]:
    """A host with two InfiniBand PFs whose two VFs each have no driver yet."""
    return unbound(tmp_path, "mlx5-infiniband")


def unbound(tmp_path: Path, nic: str) -> tuple[Roots, VfTable]:
    """A host with two PFs of a driver, whose two VFs each have no driver yet."""
    host = describe_host("n1", 1, vfs=2, nics=[nic])
    roots = Roots(tmp_path / nic, tmp_path / "state", tmp_path / "run")
    build(roots.sysfs, host)
    for pf in (FIRST, SECOND):
        (device(roots, pf) / "sriov_drivers_autoprobe").write_text("1\n")
    for physfn in (roots.sysfs / "bus/pci/devices").glob("*/physfn"):
        (physfn.parent / "driver").unlink()
        (physfn.parent / "driver_override").write_text("\n")
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    return roots, table


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


@pytest.mark.parametrize("nic", ["mlx5-ethernet", "mlx5-bluefield", "bnxt", "ice", "i40e", "mlx4", "hns3"])
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
