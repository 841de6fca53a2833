"""`init` after the driver of a PF was reloaded: the ledger has entries of VFs that are gone."""

import shutil
from pathlib import Path

import pytest

from advertiser.host.read_host import Roots, read_boot_id
from advertiser.init import prepare_pf
from mooring.files import write_file
from mooring.locks import hold
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name
from tests.advertiser.init.nics import FIRST, Nic, device, prepared, unbound

VF0, VF1 = "0000:04:00.2", "0000:04:00.3"
_OURS = read_boot_id()


def give(roots: Roots, vf: str, index: int, boot: str = _OURS) -> None:
    entry = LedgerEntry(
        vf, "enp4s0f0", index, "held", boot, "u1", "ns/p", "c1", "net1", Netns("/run/netns/p", 1), Original("eth2")
    )
    write_file(roots.state / ledger_name(vf), dump_ledger_entry(entry))


@pytest.fixture
def reloaded(tmp_path: Path) -> Roots:
    """A host with two PFs whose VFs are to be made again; the kernel's files make none, so that they are there already.

    A pod held VF 0 of the first PF.
    """
    roots, _ = unbound(tmp_path, "mlx5-ethernet")
    (device(roots, FIRST) / "sriov_numvfs").write_text("0\n")
    give(roots, VF0, 0)
    return roots


def test_vfs_that_are_made_again_are_all_prepared(reloaded: Roots) -> None:
    """One whose earlier self a pod held too: it has its settings and its driver."""
    nic = Nic()
    failures, done = prepared(reloaded, nic)
    assert (failures, done) == ([], ["enp4s0f0", "enp4s0f1"])
    assert {("enp4s0f0", 0), ("enp4s0f0", 1)} <= {*nic.told}
    assert (device(reloaded, FIRST) / "sriov_numvfs").read_text() == "2"


def test_a_run_that_was_killed_before_it_had_prepared_them_is_finished(reloaded: Roots) -> None:
    """The VFs are there, without a driver: what a pod has has one."""
    (device(reloaded, FIRST) / "sriov_numvfs").write_text("2\n")
    nic = Nic()
    assert prepared(reloaded, nic)[0] == []
    assert {("enp4s0f0", 0), ("enp4s0f0", 1)} <= {*nic.told}


def test_a_vf_that_a_call_binds_again_is_left_to_it(reloaded: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call holds its lock, and may wait for the PF's: `init` fails, and its next run finds the VF bound."""
    monkeypatch.setattr(prepare_pf, "_VF_LOCK_S", 0.0)
    (device(reloaded, FIRST) / "sriov_numvfs").write_text("2\n")
    nic = Nic()
    with hold(reloaded.run, VF0, 0):
        failures, _ = prepared(reloaded, nic)
    assert failures == [f"the lock of '{VF0}' is held by another call"]
    assert ("enp4s0f0", 0) not in nic.told


def test_vfs_of_another_number_stay_while_a_pod_has_one(roots: Roots) -> None:
    """Its netdev is in the pod."""
    (device(roots, FIRST) / "sriov_numvfs").write_text("1\n")
    shutil.rmtree(next((device(roots, VF0) / "net").iterdir()))
    give(roots, VF0, 0)
    (failure,) = prepared(roots)[0]
    assert f"1 are in use: {VF0} (pod ns/p)" in failure


@pytest.mark.parametrize("boot", [_OURS, "an-earlier-boot"])
def test_a_vf_that_is_back_on_the_host_is_no_pods(roots: Roots, boot: str) -> None:
    """Another program has made fewer VFs again after the reload, or the node was booted: no pod has that VF."""
    (device(roots, FIRST) / "sriov_numvfs").write_text("1\n")
    give(roots, VF0, 0, boot)
    assert prepared(roots)[0] == []
