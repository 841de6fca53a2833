"""A server is killed while it changes rates: what it leaves, and what the next one makes of it."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from cni.server.held_settings import HeldSettings
from cni.vf.detach import original_settings
from cni.vf.detach.detach import detach
from mooring.annotations.rates import VfRates
from mooring.nic.settings import VfSettings
from mooring.records.rates_exchange import (
    RatesState,
)
from tests.cni.server.rates.pod import NEW, OLD, OTHERS, PF, STEPS, Killed, Pod, pci


def test_rates_are_recorded_then_lowered_then_raised(pod: Pod) -> None:
    """Each VF is in the ledger before the next one is set; what is told comes last, and the rest of a VF stays."""
    pod.hand_over(*NEW)
    server = pod.server()
    server.look(0)
    assert pod.steps == STEPS
    assert pod.rates() == NEW
    assert pod.state() == RatesState("ns/p", 1, in_force=True)
    entries = [pod.ledger.read(pci(vf)) for vf in range(3)]
    assert [(entry.set.vlan, entry.original.settings) for entry in entries if entry is not None] == [
        (7, VfSettings(0, 0, vlan=0))
    ] * 3
    assert (pod.value("rates_changes_total"), pod.value("pending_rates")) == (1, 0)
    server.look(1)
    assert len(pod.steps) == len(STEPS)


@pytest.mark.parametrize(
    "deaths", [*((one,) for one in range(1, len(STEPS) + 1)), *itertools.product((2, 5, 8), (1, 4))]
)
def test_a_server_that_is_killed_anywhere_is_followed_by_one_that_ends_the_work(
    pod: Pod, deaths: tuple[int, ...]
) -> None:
    """After the record, after each setting and each ledger entry, and once more while the next one repairs.

    The PF never reserves more than the larger of old and new of each VF, and nothing is told too early.
    """
    pod.hand_over(*NEW)
    for death in deaths:
        pod.steps, pod.deadly = [], death
        server = pod.server()
        try:
            server.look(0)
        except Killed:
            assert pod.state() is None
    pod.deadly = 0
    pod.server().look(0)
    assert pod.rates() == NEW
    assert pod.state() == RatesState("ns/p", 1, in_force=True)
    larger = [max(old.min_tx_rate or 0, new.min_tx_rate or 0) for old, new in zip(OLD, NEW, strict=True)]
    assert pod.most <= sum(larger) + OTHERS
    entries = {vf: pod.ledger.read(pci(vf)) for vf in range(3)}
    assert all(entry is not None and entry.original.settings == VfSettings(0, 0, vlan=0) for entry in entries.values())


@pytest.mark.parametrize("death", range(1, len(STEPS) + 1))
def test_a_decision_that_is_taken_back_after_a_kill_is_taken_back_on_the_nic_too(pod: Pod, death: int) -> None:
    """The ledger may not know yet what the PF has: a generation is in force once the PF has it."""
    pod.hand_over(*NEW)
    pod.deadly = death
    with pytest.raises(Killed):
        pod.server().look(0)
    pod.deadly = 0
    pod.hand_over(*OLD, generation=2)
    pod.server().look(0)
    assert (pod.rates(), pod.state()) == (OLD, RatesState("ns/p", 2, in_force=True))


@pytest.mark.parametrize("death", range(1, len(STEPS) + 1))
def test_what_a_killed_server_has_set_is_restored_with_the_vf(pod: Pod, death: int) -> None:
    """DEL needs no server: the entry says of each rate that was changed that it was."""
    pod.hand_over(*NEW)
    pod.deadly = death
    with pytest.raises(Killed):
        pod.server().look(0)
    pod.deadly = 0
    for vf in range(3):
        entry = pod.ledger.read(pci(vf))
        assert entry is not None
        original_settings.restore(pod.node, entry)
    assert pod.rates() == (VfRates(), VfRates(), VfRates())


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_vf_on_its_way_back_reserves_what_a_killed_server_had_raised(pod: Pod, is_recorded: bool) -> None:
    """The server had set 45,000 and not entered it; the inventory names the entry's rate until the VF is restored."""
    pod.hand_over(*NEW)
    pod.deadly = STEPS.index("set 1") + 1
    with pytest.raises(Killed):
        pod.server().look(0)
    if not is_recorded:
        (pod.root / "state/pods/u1.json").unlink()
    entry = pod.ledger.read(pci(1))
    assert entry is not None
    assert (entry.reserved_mbps, pod.table.read(PF, 1).min_tx_rate) == (10_000, 45_000)
    pod.steps, pod.deadly = [], 1
    with pytest.raises(Killed):
        detach(pod.node, entry)
    left = pod.ledger.read(pci(1))
    assert left is not None
    assert (left.phase, left.reserved_mbps) == ("returning", 45_000)


def test_a_vf_on_its_way_back_counts_by_what_its_pf_has(pod: Pod) -> None:
    """Its entry says 10,000, as the new rates do; a killed server had set 30,000."""
    entry = pod.ledger.read(pci(1))
    assert entry is not None
    pod.ledger.write(replace(entry, phase="returning"))
    pod.table.write(PF, 1, VfSettings(30_000))
    pod.hand_over(*OLD)
    server = pod.server()
    server.look(0)
    assert pod.state() == RatesState("ns/p", 1, in_force=False)
    pod.table.write(PF, 1, VfSettings(0))
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)


def test_while_rates_are_on_their_way_nobody_is_said_to_have_changed_them(pod: Pod, events: list[Any]) -> None:
    """Between a setting and its ledger entry the PF differs from the ledger: the reconciler looks at any time."""
    pod.hand_over(*NEW)
    pod.deadly = 2
    with pytest.raises(Killed):
        pod.server().look(0)
    held = HeldSettings(pod.metrics)
    held.compare(pod.node, list(pod.ledger.entries()))
    assert [each["event"] for each in events if "held vf" in each["event"]] == []
    pod.table.write(PF, 3, VfSettings(1000))
    held.compare(pod.node, list(pod.ledger.entries()))
    assert [each["event"] for each in events if "held vf" in each["event"]] == [
        "settings of a held vf were changed by another program"
    ]
