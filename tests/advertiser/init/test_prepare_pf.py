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
from mooring.annotations.pf_terms import Access, Allow
from mooring.indexes import Indexes
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records.node_offer import PfOffer, read_node_offer
from mooring.records.run_folder import IN_PREPARATION
from tests.advertiser.init.nics import FIRST, SECOND, Nic, TableNic, device, offer_of, prepared, unbound

# A file of the kernel's that can be opened, and refuses to be written.
REFUSES = Path("/proc/version")


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


def test_nothing_is_done_to_a_host_that_has_what_it_should(roots: Roots) -> None:
    """Both PFs are examined, autoprobe is as it was, no marker is left."""
    assert prepared(roots) == ([], ["enp4s0f0", "enp4s0f1"])
    assert (device(roots, FIRST) / "sriov_drivers_autoprobe").read_text().strip() == "1"
    assert list((roots.run / IN_PREPARATION).iterdir()) == []


def test_an_offer_without_init_prepares_nothing(roots: Roots) -> None:
    """Settings that the operator did not configure are not touched."""
    assert PfPreparer(roots, Nic(), lambda *_: None).prepare_all(EVERYTHING, "n1") == ()
    assert not (roots.run / IN_PREPARATION).exists()


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
    assert failure.startswith("enp4s0f0: the kernel rejected sriov_drivers_autoprobe 0 (EIO): ")
    assert done == ["enp4s0f1"]
    assert list((roots.run / IN_PREPARATION).iterdir()) == []


def test_a_pf_whose_lock_stays_held_is_one_that_cannot_be_prepared(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the PF; the other one is prepared."""
    monkeypatch.setattr(prepare_pf, "_LOCK_S", 0.05)
    with hold(roots.run, FIRST, 1):
        failures, done = prepared(roots)
    assert failures == [f"the lock of '{FIRST}' is held by another call"]
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
    assert [failure.partition(": too few")[0] for failure in failures] == [
        f"enp4s0f{index}: the driver 'mlx5_core' accepted sriov_numvfs 2 without an error, but made {room}"
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


def test_every_vf_without_a_rate_is_enrolled_and_one_with_a_rate_is_left_alone(roots: Roots) -> None:
    """One message a PF, before anything is written to a single VF; a VF that a pod has is enrolled too."""
    nic = Nic()
    nic.rates = {
        "enp4s0f0": {0: VfSettings(0, 0), 1: VfSettings(0, 0)},
        "enp4s0f1": {0: VfSettings(0, 500), 1: VfSettings(0, 0)},
    }
    assert prepared(roots, nic)[0] == []
    assert nic.cleared == [("enp4s0f0", [0, 1]), ("enp4s0f1", [1])]


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
    assert str(failure) == "enp4s0f0: the PF rejects mtu 65000 (EINVAL)"


def test_vfs_with_a_larger_mtu_than_their_pf_are_named(roots: Roots) -> None:
    """The offer names no MTU, and the PF may be the host's own link: nothing is changed."""
    for netdev, mtu in ((FIRST, 1500), ("0000:04:00.2", 9000), ("0000:04:00.3", 1500)):
        (next((device(roots, netdev) / "net").iterdir()) / "mtu").write_text(f"{mtu}\n")
    with structlog.testing.capture_logs() as logs:
        assert prepared(roots)[0] == []
    (warning,) = [each for each in logs if each["log_level"] == "warning"]
    assert warning["event"] == "VFs have a larger MTU than their PF, which drops longer frames"
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


def test_a_vlan_that_other_namespaces_can_have_is_logged(roots: Roots) -> None:
    """The PFs are prepared: VLANs may repeat on separate switches."""
    secret, other = Terms("secret", vlan=7, access=Access(("a",))), Terms("open", vlan=7)
    offer = Offer((OfferEntry((("pci", SECOND),), secret), OfferEntry((), other)))
    with structlog.testing.capture_logs() as logs:
        assert PfPreparer(roots, Nic(), lambda *_: None).prepare_all(offer, "n1") == ()
    (warning,) = [entry for entry in logs if entry["event"] == "other namespaces can have a VLAN of the offer"]
    assert warning["log_level"] == "warning"
    assert "can have vlan 7 on network 'open'" in warning["reason"]


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


class WithoutTrust(TableNic):
    """A driver that answers 0 to trust, and has it as it was."""

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        if settings.trust is None:
            super().write(pf, vf, settings)


def test_trust_that_does_not_read_back_keeps_the_vf_without_its_driver(tmp_path: Path) -> None:
    """It would be on offer with another confinement than the offer says."""
    roots, table = unbound(tmp_path, "ice")
    offer = offer_of(Init(2, VfSettings(trust=True)))
    failures = PfPreparer(roots, WithoutTrust(table), lambda *_: None).prepare_all(offer, "n1")
    said = "enp4s0f{}: VF 0: trust is False after it was set to True"
    assert [str(each) for each in failures] == [said.format(0), said.format(1)]
    assert not (device(roots, "0000:04:00.2") / "driver").exists()


def test_spoof_check_that_a_firmware_refuses_for_good_is_not_taken_for_set(tmp_path: Path) -> None:
    """hns3 remembers "on" after a refused "off", and skips it then: that reads as if all were well."""
    roots, table = unbound(tmp_path, "hns3")
    for vf in (0, 1):
        table.write("enp4s0f0", vf, VfSettings(spoofchk=True))
    table.change_pf("enp4s0f0", firmware_refuses=1000)
    failures = PfPreparer(roots, TableNic(table), lambda *_: None).prepare_all(offer_of(Init(2)), "n1")
    assert [str(each) for each in failures] == ["enp4s0f0: VF 0: the NIC rejects spoofchk (EIO)"]


def test_spoof_check_that_a_run_before_was_refused_is_in_force_after_the_next(tmp_path: Path) -> None:
    """i40e reads it as on, and does not write it again (i40e_ndo_set_vf_spoofchk); mlx5 has no ingress ACL."""
    for nic in ("i40e", "mlx5-ethernet"):
        roots, table = unbound(tmp_path, nic)
        for vf in (0, 1):
            table.write("enp4s0f0", vf, VfSettings(spoofchk=False))
        table.change_pf("enp4s0f0", firmware_refuses=1)
        preparer = PfPreparer(roots, TableNic(table), lambda *_: None)
        (failure,) = preparer.prepare_all(offer_of(Init(2)), "n1")
        assert str(failure) == "enp4s0f0: VF 0: the NIC rejects spoofchk (EIO)"
        assert not (device(roots, "0000:04:00.2") / "driver").exists()
        assert preparer.prepare_all(offer_of(Init(2)), "n1") == ()
        assert [table.checks_macs("enp4s0f0", vf) for vf in (0, 1)] == [True, True]
