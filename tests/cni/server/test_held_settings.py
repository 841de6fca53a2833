"""Settings of held VFs that a PF forgot, or that somebody changed, on simulated mlx5 PFs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from cni.kernel.sysfs import Sysfs
from cni.plan import resets
from cni.server.held_settings import HeldSettings
from cni.server.metrics import Metrics
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from tests.support.simulated_nics import EACH, INFINIBAND, MLX5, Nic

PF, PF_PCI = "enp4s0f0", "0000:04:00.0"


class Held:
    """A node with pods' VFs 0 and 1 of four; VF 1 has no rates."""

    def __init__(self, root: Path, nic: Nic) -> None:
        host = nic.host(vfs=4)
        build(root / "sys", host)
        self.table = VfTable(root / "vftable.json")
        self.table.reset(host)
        self.node = Node(Sysfs(root / "sys"), Ledger(root / "state"), root / "run", self.table, "b")
        self.metrics = Metrics()
        self.settings = HeldSettings(self.metrics)
        if nic.link == "ethernet":
            self.table.clear_rates(PF, range(4))
        self.first = self.hold(0, nic.held)
        self.second = self.hold(1, VfSettings(vlan=9) if nic.link == "ethernet" else VfSettings(link_state="auto"))

    def hold(self, vf: int, settings: VfSettings) -> LedgerEntry:
        netns, pci = Netns("/run/netns/x", 1), f"0000:04:00.{vf + 2}"
        entry = LedgerEntry(pci, PF, vf, "held", "b", f"u{vf}", "ns/p", "c", "net1", netns, Original(), settings)
        self.node.ledger.write(entry)
        self.table.write(PF, vf, settings)
        return entry

    def compare(self) -> Mapping[int, VfSettings]:
        self.settings.compare(self.node, list(self.node.ledger.entries()))
        return self.table.read_all(PF)

    def value(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"mooring_cni_{name}")


@pytest.fixture
def nic() -> Nic:
    """The NIC of every test here that does not name another."""
    return MLX5


@pytest.fixture
def held(tmp_path: Path, nic: Nic) -> Held:
    return Held(tmp_path, nic)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


@pytest.mark.parametrize("nic", EACH)
def test_vfs_that_are_as_they_were_set_are_left_alone(held: Held, events: list[Any]) -> None:
    """Nothing is written to the VF, nothing to the ledger, and nothing is logged."""
    before = held.table.read_all(PF)
    assert held.compare() == before
    assert events == []
    assert held.node.ledger.read(held.first.pci) == held.first


def test_what_a_reload_of_the_pf_forgot_is_set_again_with_an_event(held: Held, events: list[Any]) -> None:
    """All VFs take part in the scheduling again, also those without rates; the ledger has the time."""
    before, weights = held.table.read_all(PF), held.table.weights(PF)
    held.table.reload(PF)
    assert held.compare() == before
    assert held.table.weights(PF) == weights == {0: 100, 1: 1, 2: 1, 3: 1}
    assert [(each["event"], each["pci"], each["settings"]) for each in events] == [
        (
            "settings of a held vf were lost and are restored",
            held.first.pci,
            "min_tx_rate 5000, max_tx_rate 8000, link_state enable",
        )
    ]
    entry = held.node.ledger.read(held.first.pci)
    assert entry is not None
    assert entry.reset_at is not None
    assert replace(entry, reset_at=None) == held.first
    assert (held.value("resets_total"), held.value("changed_vfs")) == (1, 0)
    held.compare()
    assert len(events) == 1


@pytest.mark.parametrize("requested", [VfSettings(), VfSettings(vlan=7)])
def test_a_link_state_that_init_gave_is_set_again_too(held: Held, events: list[Any], requested: VfSettings) -> None:
    """The pod requested none: esw_legacy_enable sets every VF's to AUTO all the same."""
    held.table.write(PF, 2, VfSettings(link_state="enable"))
    entry = held.hold(2, requested)
    held.node.ledger.write(replace(entry, original=Original(settings=held.table.read(PF, 2))))
    before = held.compare()[2]
    held.table.reload(PF)
    assert held.table.read(PF, 2).link_state == "auto"
    assert held.compare()[2] == before
    assert [each["settings"] for each in events if each["pci"] == entry.pci] == ["link_state enable"]
    held.table.write(PF, 2, VfSettings(link_state="disable"))
    held.compare()
    assert len(events) == 2


@pytest.mark.parametrize("nic", [INFINIBAND], ids=str)
def test_a_reload_of_an_infiniband_pf_forgets_nothing(held: Held, events: list[Any]) -> None:
    """The driver writes link states and GUIDs again (sriov_restore_guids); nothing is set and nothing is said."""
    before = held.table.read_all(PF)
    held.table.reload(PF)
    assert held.compare() == before
    assert (events, held.value("resets_total"), held.value("changed_vfs")) == ([], 0, 0)


@pytest.mark.parametrize("nic", EACH)
def test_what_somebody_changed_is_told_once_and_left(held: Held, nic: Nic, events: list[Any]) -> None:
    """A person may limit a VF for an hour; the gauge shows it until it is as it was set."""
    held.table.write(PF, 0, nic.others)
    changed = held.table.read(PF, 0)
    for _ in range(2):
        assert held.compare()[0] == changed
    assert [each["event"] for each in events] == ["settings of a held vf were changed by another program"]
    reasons = {"ethernet": "max_tx_rate is 6000, not 8000", "infiniband": "link_state is 'disable', not 'enable'"}
    assert events[0]["reason"] == reasons[nic.link]
    assert held.value("changed_vfs") == 1
    held.table.write(PF, 0, nic.held)
    held.compare()
    assert held.value("changed_vfs") == 0


@pytest.mark.parametrize("pci", [PF_PCI, "0000:04:00.2"])
def test_a_vf_or_pf_in_a_calls_hands_waits_for_the_next_pass(held: Held, events: list[Any], pci: str) -> None:
    """Where an ADD or DEL holds the lock of the VF or of its PF, the pass leaves it out; the next one sets it."""
    held.table.reload(PF)
    with hold(held.node.run, pci, 0):
        assert held.compare()[0].max_tx_rate == 0
    assert events == []
    assert held.compare()[0].max_tx_rate == 8000


def test_a_vf_that_is_given_back_meanwhile_is_not_set(held: Held, events: list[Any]) -> None:
    """DEL changes the entry before the VF: the entry that was listed is not the present one any more."""
    held.table.reload(PF)
    held.node.ledger.write(replace(held.first, phase="returning"))
    held.settings.compare(held.node, [held.first])
    assert held.table.read(PF, 0).max_tx_rate == 0
    held.table.write(PF, 0, VfSettings(1, 2))
    held.settings.compare(held.node, [held.first])
    assert (events, held.value("changed_vfs")) == ([], 0)


def test_a_pf_that_refuses_is_told_once_and_tried_again(
    held: Held, events: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failed write counts; the log has one line until one succeeds."""

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    held.table.reload(PF)
    with monkeypatch.context() as broken:
        broken.setattr(VfTable, "write", refuse)
        held.compare()
        held.compare()
    assert [each["event"] for each in events] == ["settings of a held vf were lost and cannot be restored"]
    assert held.value("reset_failures_total") == 2
    assert held.compare()[0].max_tx_rate == 8000


def test_a_pf_whose_driver_is_away_is_passed_over(held: Held, events: list[Any]) -> None:
    """mlx5 removes the PF's netdev during a reload, and answers for no VF."""
    held.table.change_pf(PF, present=False)
    held.settings.compare(held.node, [held.first, held.second])
    assert events == []


@pytest.mark.parametrize(
    ("wanted", "found", "lost", "left"),
    [
        (VfSettings(100, 200), VfSettings(0, 0), VfSettings(100, 200), []),
        (VfSettings(100, 200), VfSettings(0, 300), VfSettings(), ["min_tx_rate", "max_tx_rate"]),
        (VfSettings(max_tx_rate=200), VfSettings(0, 0), VfSettings(max_tx_rate=200), []),
        (
            VfSettings(vlan=7, link_state="disable"),
            VfSettings(vlan=0, qos=0, link_state="disable"),
            VfSettings(vlan=7),
            [],
        ),
        (VfSettings(vlan=7, trust=False), VfSettings(vlan=8, qos=0, trust=True), VfSettings(), ["vlan", "trust"]),
        # Not reported at all: not a reset.
        (VfSettings(max_tx_rate=200), VfSettings(), VfSettings(), ["max_tx_rate"]),
        (VfSettings(0, 0, trust=False), VfSettings(0, 0, trust=False), VfSettings(), []),
    ],
)
def test_what_reads_as_a_fresh_vf_was_forgotten_and_the_rest_was_changed(
    wanted: VfSettings, found: VfSettings, lost: VfSettings, left: list[str]
) -> None:
    """A value that a VF has after a reset was lost; any other value was set by somebody."""
    assert resets.lost_settings(wanted, found) == lost
    assert [text.partition(" ")[0] for text in resets.describe_changes(wanted, found)] == left


def test_a_refusal_is_written_again_although_all_reads_as_it_was_set(held: Held, events: list[Any]) -> None:
    """mlx5 has the VLAN that it refused, and no ingress ACL (esw_acl_ingress_lgcy_setup): the pod may spoof."""
    before = VfSettings(0, 0, "02:00:00:00:00:03", 0, 0, trust=False, spoofchk=True, link_state="auto")
    held.table.write(PF, 2, before)
    wanted = VfSettings(vlan=7, qos=0)
    entry = replace(held.hold(2, wanted), original=Original(settings=before))
    held.node.ledger.write(entry)
    held.table.write(PF, 2, VfSettings(vlan=0, qos=0))
    held.table.change_pf(PF, firmware_refuses=1000)
    for _ in range(3):
        held.compare()
    assert (held.table.read(PF, 2).vlan, held.table.checks_macs(PF, 2)) == (7, False)
    assert {each["event"] for each in events} == {"settings of a held vf were lost and cannot be restored"}
    assert getattr(held.node.ledger.read(entry.pci), "in_doubt", None)
    held.table.change_pf(PF, firmware_refuses=0)
    held.compare()
    assert (held.table.read(PF, 2), held.table.checks_macs(PF, 2)) == (replace(before, vlan=7), True)
    assert events[-1]["event"] == "settings of a held vf were lost and are restored"
    assert getattr(held.node.ledger.read(entry.pci), "in_doubt", None) is False
    held.compare()
    assert (held.value("resets_total"), held.value("reset_failures_total")) == (1, 3)
