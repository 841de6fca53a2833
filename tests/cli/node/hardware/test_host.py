"""The harmless checks on a host below a folder: its sysfs, and commands that print what a real host's printed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cli.node.errors import NodeError
from cli.node.hardware import host
from cli.node.hardware.host import Target
from cli.node.hardware.plan.addresses import PfAddresses
from cli.node.hardware.plan.checks import CHECKS, Answer
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings

PF = Pf(
    *("ens1f0", "0000:3b:00.0", "ethernet", "rail0", 100_000, 90_000),
    up=True,
    vfs=Indexes.parse("0-1"),
    vf0="0000:3b:00.2",
    rdma="mlx5_0",
    can=frozenset({"mac", "vlan", "guid"}),
)
ADDRESSES = PfAddresses("b8:59:9f:12:34:56")
FILES = {
    "vendor": "0x15b3",
    "device": "0x101d",
    "sriov_totalvfs": "8",
    "net/ens1f0/phys_switch_id": "b8599f0300123456",
    "net/ens1f0/speed": "100000",
    "net/ens1f0/operstate": "up",
}
REPORTED = VfSettings(mac="02:00:00:00:00:01", vlan=0, trust=False)
COMMANDS = {
    "ethtool": "driver: mlx5_core\nversion: 6.8.0\nfirmware-version: 22.39.1002 (MT_0000000359)",
    "rdma": "netns exclusive copy-on-fork on",
    "devlink": '{"dev":{"pci/0000:3b:00.0":{"mode":"legacy"}}}',
    "systemctl": "LoadState=loaded\nLimitMEMLOCK=65536",
    "udevadm": "ID_NET_LINK_FILE=/usr/lib/systemd/network/99-default.link",
}


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """A PF's settings that nothing changes."""

    settings: VfSettings

    def read(self, pf: str, vf: int) -> VfSettings:
        return self.settings

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        return {0: self.settings}

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise AssertionError("a harmless check has set something")

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        raise AssertionError("a harmless check has set something")


@dataclass(slots=True)
class FakeHost:
    """A host's root folder, the commands on its PATH, and what its advertiser shows."""

    root: Path
    pf: Pf = PF
    left_out: list[dict[str, Any]] = field(default_factory=list)
    settings: VfSettings = REPORTED

    def write(self, path: str, text: str) -> None:
        there = self.root / path
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)

    def command(self, name: str, prints: str, status: int = 0) -> None:
        path = self.root / "path" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ncat <<'E'\n{prints}\nE\nexit {status}\n")
        path.chmod(0o755)

    @property
    def shown(self) -> dict[str, Any]:
        return {"inventory": json.loads(dump_inventory(Inventory("boot", (self.pf,)))), "left_out": self.left_out}

    def answers(self) -> dict[str, Answer]:
        target = Target(
            self.root, self.pf, FixedSettings(self.settings), self.root / "state", self.root / "run", ADDRESSES
        )
        return {answer.check: answer for answer in host.ask(target, self.shown)}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """Make a host on which everything is as expected."""
    made = FakeHost(tmp_path)
    for path, text in FILES.items():
        made.write(f"sys/bus/pci/devices/0000:3b:00.0/{path}", text)
    (tmp_path / "sys/class/net").mkdir(parents=True)
    for name, prints in COMMANDS.items():
        made.command(name, prints)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    return made


def outcomes(answers: Mapping[str, Answer], outcome: str) -> list[str]:
    return [name for name, answer in answers.items() if answer.outcome == outcome]


def test_each_harmless_check_has_one_answer(fake: FakeHost) -> None:
    """On a host as it should be nothing differs."""
    answers = fake.answers()
    assert list(answers) == [check.id for check in CHECKS if check.stage == "host"]
    assert outcomes(answers, "differs") == []
    assert answers["host.nic"].found["ethtool"] == {
        "driver": "mlx5_core",
        "version": "6.8.0",
        "firmware-version": "22.39.1002 (MT_0000000359)",
    }


def test_a_pf_that_is_down_differs(fake: FakeHost) -> None:
    """Nothing passes through its VFs."""
    fake.pf = replace(PF, up=False)
    assert outcomes(fake.answers(), "differs") == ["host.ports"]


def test_pfs_with_the_same_switch_id_are_told(fake: FakeHost) -> None:
    """They may be one cable: socket direct, multi-host."""
    fake.write("sys/class/net/ens9f0/phys_switch_id", FILES["net/ens1f0/phys_switch_id"])
    assert fake.answers()["host.ports"].found["same-switch"] == ["ens9f0"]


def test_switchdev_mode_differs(fake: FakeHost) -> None:
    """Mooring does not offer such a PF."""
    fake.command("devlink", '{"dev":{"pci/0000:3b:00.0":{"mode":"switchdev"}}}')
    assert outcomes(fake.answers(), "differs") == ["host.switch-mode"]


def test_a_kernel_without_devlink_is_not_a_difference(fake: FakeHost) -> None:
    """Its answer is told as it is: EOPNOTSUPP is legacy mode on many drivers."""
    fake.command("devlink", "kernel answers: Operation not supported", status=1)
    answer = fake.answers()["host.switch-mode"]
    assert answer.outcome == "ok"
    assert "Operation not supported" in str(answer.found["eswitch"])


def test_shared_rdma_mode_differs(fake: FakeHost) -> None:
    """Pods would see each other's devices."""
    fake.command("rdma", "netns shared copy-on-fork on")
    assert outcomes(fake.answers(), "differs") == ["host.rdma-mode"]


def test_a_setting_of_can_that_the_pf_does_not_report_differs(fake: FakeHost) -> None:
    """A GUID that was never set is not reported by any driver; a VLAN is."""
    fake.settings = VfSettings(mac="02:00:00:00:00:01")
    answer = fake.answers()["host.settings-reported"]
    assert (answer.outcome, answer.why) == ("differs", "not reported: vlan")


def test_a_pf_without_usable_vfs_differs(fake: FakeHost) -> None:
    """The reason is the advertiser's."""
    fake.pf = replace(PF, vfs=Indexes())
    assert fake.answers()["host.discovery"].outcome == "differs"


def test_a_host_without_the_commands_is_asked_all_the_same(fake: FakeHost) -> None:
    """A minimal host lacks ethtool, devlink and udevadm; each check still has its answer."""
    for name in COMMANDS:
        (fake.root / "path" / name).write_text("#!/bin/sh\nexit 127\n")
    assert len(fake.answers()) == sum(check.stage == "host" for check in CHECKS)


def test_a_nic_that_is_not_on_offer_is_tested_where_that_is_wanted(fake: FakeHost) -> None:
    """It is the very case in which its owner needs a report: the reason is in it, and is said before."""
    fake.left_out = [{"name": "ens1f0", "pci": "0000:3b:00.0", "why": "switchdev"}]
    shown = {**fake.shown, "inventory": {"v": 1, "boot": "b", "pfs": []}}
    for name in ("ens1f0", "0000:3b:00.0"):
        with pytest.raises(NodeError, match=rf"PF '{name}' is not on offer \(ens1f0: switchdev\): with --pf"):
            host.find_pf(shown, name)
        fake.pf = host.find_pf(shown, name, force=True)
        assert list(fake.pf.vfs) == []
        target = Target(fake.root, fake.pf, FixedSettings(VfSettings()), fake.root, fake.root, ADDRESSES)
        answers = {answer.check: answer for answer in host.ask(target, shown)}
        assert (answers["host.discovery"].outcome, answers["host.discovery"].why) == ("differs", "switchdev")
    with pytest.raises(NodeError, match=r"no PF of this host is on offer \(ens1f0: switchdev\)"):
        host.find_pf(shown, "", force=True)


def test_a_pf_that_is_not_there_is_an_error(fake: FakeHost) -> None:
    """By name, or none at all."""
    with pytest.raises(NodeError, match="no PF 'eth9'"):
        host.find_pf(fake.shown, "eth9")
    with pytest.raises(NodeError, match="no NIC"):
        host.find_pf({"inventory": {"v": 1, "boot": "b", "pfs": []}, "left_out": []}, "")


def test_addresses_of_the_test_come_from_the_permanent_address(fake: FakeHost) -> None:
    """Both PFs of a bond have the bond's MAC; `ip` shows the permanent one only where it is another."""
    bonded = [{"address": "02:00:00:00:00:99", "permaddr": f"b8:59:9f:12:34:5{n}"} for n in (6, 7)]
    fake.command("ip", json.dumps([bonded[0]]))
    first = host.addresses_of(PF)
    fake.command("ip", json.dumps([bonded[1]]))
    second = host.addresses_of(PF)
    fake.command("ip", json.dumps([{"address": "b8:59:9f:12:34:56"}]))
    assert host.addresses_of(PF) == first == ADDRESSES
    assert first.mac("admin") != second.mac("admin")
