"""A PF refuses a setting and has changed all the same: what reads right is written again before the VF is anybody's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.spec.skel import TRY_AGAIN, CniError
from cni.vf.detach import left_behind, original_settings
from cni.vf.detach.detach import detach
from cni.vf.detach.rebind import InUseError
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original, Phase

PF, VF0 = "enp4s0f0", "0000:04:00.2"
OWN, OF_POD = "02:00:00:00:00:01", "02:00:00:00:00:99"
BEFORE = VfSettings(0, 0, OWN, 0, 0, trust=False, spoofchk=True, link_state="auto")
MANY = 1000


class Vf:
    """VF 0 of a driver's PF, without a netdev: spoof check is on, and a pod has had it with a MAC and a VLAN."""

    def __init__(self, root: Path, nic: str) -> None:
        described = describe_host("n1", 1, vfs=2, nics=[nic])
        build(root / "sys", described)
        self.path = root / "vftable.json"
        self.table = VfTable(self.path)
        self.table.reset(described)
        self.node = Node(Sysfs(root / "sys"), Ledger(root / "state"), root / "run", self.table, "b")
        self.table.write(PF, 0, VfSettings(mac=OWN, spoofchk=True))
        self.before = self.table.read(PF, 0)
        assert self.table.checks_macs(PF, 0)

    def hold(self, phase: Phase, settings: VfSettings, *, in_doubt: bool = False) -> LedgerEntry:
        """Enter what the pod's VF is set to; the PF is asked for it by the test."""
        original = Original(settings=self.before)
        entry = LedgerEntry(
            VF0, PF, 0, phase, "b", "u1", "ns/p", "c", "net1", Netns("/n", 1), original, settings, in_doubt=in_doubt
        )
        self.node.ledger.write(entry)
        return entry

    def firmware_refuses(self, commands: int) -> None:
        self.table.change_pf(PF, firmware_refuses=commands)

    def refuse(self, setting: str) -> None:
        """Let the PF answer EOPNOTSUPP for a setting."""
        document = json.loads(self.path.read_text())
        document["pfs"][PF]["refuse"] = [setting]
        self.path.write_text(json.dumps(document))

    def ask(self, settings: VfSettings) -> None:
        """Ask the PF for settings, which its firmware refuses."""
        self.firmware_refuses(1)
        with pytest.raises(OSError, match="firmware command"):
            self.table.write(PF, 0, settings)

    def detach(self) -> bool:
        entry = self.node.ledger.read(VF0)
        assert entry is not None
        return detach(self.node, entry)


@pytest.fixture
def nic() -> str:
    """The driver of every test here that does not name another."""
    return "mlx5-ethernet"


@pytest.fixture
def vf(tmp_path: Path, nic: str) -> Vf:
    return Vf(tmp_path, nic)


@pytest.mark.parametrize("settings", [VfSettings(mac=OWN), VfSettings(mac=OF_POD), VfSettings(vlan=7, qos=0)])
def test_a_refusal_at_add_leaves_a_vf_that_may_not_spoof(vf: Vf, settings: VfSettings) -> None:
    """mlx5 has no ingress ACL then, and reports spoof check on: also where all else reads as before."""
    vf.hold("taking", settings)
    vf.ask(settings)
    assert (vf.table.read(PF, 0).spoofchk, vf.table.checks_macs(PF, 0)) == (True, False)
    assert vf.detach()
    assert (vf.table.read(PF, 0), vf.table.checks_macs(PF, 0)) == (vf.before, True)
    assert vf.node.ledger.read(VF0) is None


@pytest.mark.parametrize("settings", [VfSettings(mac=OF_POD), VfSettings(vlan=7, qos=0), VfSettings(spoofchk=False)])
def test_a_release_that_is_refused_keeps_the_vf_until_it_is_written_again(vf: Vf, settings: VfSettings) -> None:
    """After the refusal the PF reports what was there before the pod."""
    vf.table.write(PF, 0, settings)
    vf.hold("held", settings)
    vf.firmware_refuses(MANY)
    for _ in range(2):
        with pytest.raises(CniError, match="cannot be restored"):
            vf.detach()
        entry = vf.node.ledger.read(VF0)
        assert entry is not None
        assert (entry.phase, entry.in_doubt) == ("returning", True)
    vf.firmware_refuses(0)
    assert vf.detach()
    assert (vf.table.read(PF, 0), vf.table.checks_macs(PF, 0)) == (vf.before, True)


def test_a_refusal_is_not_forgotten_while_a_process_keeps_the_vf_from_being_restored(
    vf: Vf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebind would take the device from another container's process: nothing is written before that has ended."""
    vf.hold("taking", VfSettings(mac=OF_POD))
    vf.ask(VfSettings(mac=OF_POD))

    def in_use(*_: object) -> bool:
        raise InUseError(TRY_AGAIN, "pid 7 has uverbs3 open")

    with monkeypatch.context() as patch:
        patch.setattr(left_behind, "rebind_by_offer", in_use)
        assert not vf.detach()
    entry = vf.node.ledger.read(VF0)
    assert entry is not None
    assert (entry.phase, entry.in_doubt) == ("returning", True)
    assert vf.detach()
    assert (vf.table.read(PF, 0), vf.table.checks_macs(PF, 0)) == (vf.before, True)


def test_a_refusal_before_a_rebind_is_not_forgotten_after_it(vf: Vf) -> None:
    """The settings of a VF without a driver are restored, and what is refused is logged only."""
    vf.table.write(PF, 0, VfSettings(mac=OF_POD))
    entry = vf.hold("returning", VfSettings(mac=OF_POD))
    vf.firmware_refuses(MANY)
    original_settings.restore_unbound(vf.node, entry)
    assert vf.table.read(PF, 0).mac == OWN
    with pytest.raises(CniError, match="cannot be restored"):
        original_settings.restore(vf.node, entry)
    vf.firmware_refuses(0)
    original_settings.restore(vf.node, entry)
    assert vf.table.checks_macs(PF, 0)


@pytest.mark.parametrize("nic", ["i40e", "hns3"])
def test_a_driver_that_skips_what_it_remembers_gets_another_value_first(vf: Vf) -> None:
    """A second "on" would succeed, and the firmware would never hear of it."""
    vf.hold("taking", VfSettings(spoofchk=True))
    if vf.table.read(PF, 0).mac == OWN and vf.node.sysfs.driver("0000:04:00.0") == "i40e":
        vf.table.write(PF, 0, VfSettings(spoofchk=False))
        vf.ask(VfSettings(spoofchk=True))
    else:
        vf.ask(VfSettings(spoofchk=False))
    vf.table.write(PF, 0, VfSettings(spoofchk=True))
    assert (vf.table.read(PF, 0).spoofchk, vf.table.checks_macs(PF, 0)) == (True, False)
    assert vf.detach()
    assert vf.table.checks_macs(PF, 0)


@pytest.mark.parametrize("nic", ["hns3"])
def test_a_firmware_that_refuses_for_good_does_not_look_restored(vf: Vf) -> None:
    """The driver remembers "on" after a refused "off", and takes the next "on" for done."""
    vf.hold("taking", VfSettings(spoofchk=False))
    vf.ask(VfSettings(spoofchk=False))
    vf.firmware_refuses(MANY)
    for _ in range(2):
        with pytest.raises(CniError, match="cannot be restored"):
            vf.detach()
    vf.firmware_refuses(0)
    assert vf.detach()
    assert (vf.table.read(PF, 0), vf.table.checks_macs(PF, 0)) == (vf.before, True)


@pytest.mark.parametrize(
    "lacking",
    [VfSettings(mac=OF_POD), VfSettings(vlan=7), VfSettings(trust=True), VfSettings(guid="02:00:00:00:00:00:00:01")],
)
def test_a_nic_that_lacks_a_setting_keeps_no_vf(vf: Vf, lacking: VfSettings) -> None:
    """A pod may request it again and again."""
    vf.refuse(*lacking.to_fields())
    vf.hold("taking", lacking, in_doubt=True)
    assert vf.detach()
    assert (vf.table.read(PF, 0), vf.table.checks_macs(PF, 0)) == (vf.before, True)


@pytest.mark.parametrize("nic", ["mlx5-bluefield"])
def test_a_pf_that_may_not_set_spoof_check_keeps_no_vf(tmp_path: Path, nic: str) -> None:
    """It reports off, and answers EPERM (mlx5_esw_allowed)."""
    described = describe_host("n1", 1, vfs=2, nics=[nic])
    build(tmp_path / "sys", described)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(described)
    node = Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, "b")
    before = table.read(PF, 0)
    netns, original = Netns("/n", 1), Original(settings=before)
    entry = LedgerEntry(VF0, PF, 0, "taking", "b", "u1", "ns/p", "c", "net1", netns, original, VfSettings(trust=True))
    node.ledger.write(entry)
    assert detach(node, entry)
    assert table.read(PF, 0) == before


@pytest.mark.parametrize("nic", ["ice", "bnxt"])
def test_a_vf_whose_pf_reports_its_own_address_is_not_pinned_to_it(tmp_path: Path, nic: str) -> None:
    """ADD was refused something and has set no MAC, or has set the VF's own for spoof check."""
    described = describe_host("n1", 1, vfs=2, nics=[nic])
    build(tmp_path / "sys", described)
    (tmp_path / "nic").mkdir()
    table = VfTable(tmp_path / "nic" / "vftable.json")
    table.reset(described)
    node = Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, "b")
    before, kept = table.read(PF, 0), (tmp_path / "nic" / "vftable.json").read_text()
    assert before.mac is not None
    original = Original(settings=before, netdev_mac=before.mac)
    for settings in (VfSettings(vlan=7, qos=0), VfSettings(mac=before.mac, spoofchk=True)):
        entry = LedgerEntry(VF0, PF, 0, "taking", "b", "u1", "ns/p", "c", "net1", Netns("/n", 1), original, settings)
        node.ledger.write(entry)
        table.write(PF, 0, settings)
        assert detach(node, entry)
        assert (tmp_path / "nic" / "vftable.json").read_text() == kept


def test_an_entry_of_a_vf_that_the_ledger_had_lost_is_in_doubt(vf: Vf) -> None:
    """Its MAC and spoof check stay as they read, and are written again."""
    vf.ask(VfSettings(mac=OWN))
    vf.before = replace(VfSettings(0, 0, None, 0, 0), trust=False, link_state="auto")
    vf.hold("returning", vf.table.read(PF, 0), in_doubt=True)
    assert vf.detach()
    assert vf.table.checks_macs(PF, 0)
    assert vf.table.read(PF, 0) == BEFORE


@pytest.mark.parametrize("nic", ["bnxt"])
def test_trust_that_the_pf_takes_and_its_firmware_keeps_is_a_refusal(vf: Vf) -> None:
    """bnxt_set_vf_trust returns 0 all the same; the next pod would receive everything."""
    vf.table.write(PF, 0, VfSettings(trust=True))
    vf.hold("held", VfSettings(trust=True))
    vf.firmware_refuses(1)
    with pytest.raises(CniError, match="cannot be restored") as error:
        vf.detach()
    assert "trust is True, not False" in str(error.value.details)
    assert vf.detach()
    assert vf.table.read(PF, 0) == vf.before
