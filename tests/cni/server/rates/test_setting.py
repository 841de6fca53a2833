"""Changed rates are set on the PF: refusals, the line rate, other calls, VFs on their way back."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mooring.annotations.rates import VfRates
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records import shared_ports
from mooring.records.node_offer import NAME
from mooring.records.rates_exchange import (
    RatesState,
)
from tests.cni.server.rates.pod import NEW, OLD, OTHER_PF_PCI, PF, PF_PCI, Pod, pci
from tests.support.offers import node_offer


def test_what_the_nic_refuses_is_tried_again_and_is_not_in_force(pod: Pod, events: list[Any]) -> None:
    """It is told once, with PF, VF and value; the ledger says what the VF has, and a newer decision does not wait."""
    table = json.loads((pod.root / "vftable.json").read_text())
    table["pfs"][PF]["refuse"] = ["min_tx_rate"]
    accepting = json.loads((pod.root / "vftable.json").read_text())
    (pod.root / "vftable.json").write_text(json.dumps(table))
    pod.hand_over(*NEW)
    server = pod.server()
    for second in (0, 1, 19, 21):
        server.look(second)
    state = pod.state()
    assert state is not None
    assert state.refusal is not None
    assert (state.in_force, state.refusal.pci) == (False, pci(0))
    assert "pf 'enp4s0f0' refuses min_tx_rate 5000, max_tx_rate 8000 for vf 0" in state.refusal.why
    assert pod.value("rates_failures_total") == 2
    assert len([each for each in events if each["event"] == "rates are not in force yet"]) == 1
    assert pod.value("pending_rates") == 1
    entry = pod.ledger.read(pci(0))
    assert entry is not None
    assert entry.in_doubt
    (pod.root / "vftable.json").write_text(json.dumps(accepting))
    server.look(22)
    assert pod.rates() == OLD
    pod.hand_over(*NEW, generation=2)
    server.look(23)
    assert (pod.rates(), pod.state()) == (NEW, RatesState("ns/p", 2, in_force=True))


def test_no_rate_is_raised_beyond_the_line_rate_or_the_offer(pod: Pod) -> None:
    """The scheduler sees to that; what it did not decide, or with another offer, ends here."""
    pod.hand_over(VfRates(40_000, 50_000), VfRates(41_000), VfRates())
    server = pod.server()
    server.look(0)
    state = pod.state()
    assert state is not None
    assert "min rates of 101000 Mb/s would exceed its line rate of 100000 Mb/s" in str(state.refusal)
    (pod.root / "state" / NAME).write_text(node_offer(keep_percent=10))
    pod.hand_over(VfRates(40_000, 50_000), VfRates(31_000), VfRates(), generation=2)
    server.look(1)
    assert "min rates of 91000 Mb/s on pf 'enp4s0f0' would exceed 90000 Mb/s" in str(pod.state())
    assert pod.rates() == OLD
    pod.hand_over(VfRates(40_000, 50_000), VfRates(30_000), VfRates(), generation=3)
    server.look(2)
    assert pod.state() == RatesState("ns/p", 3, in_force=True)


def test_what_another_pf_of_the_cable_reserves_counts(pod: Pod) -> None:
    """Only for a VF that reserves more, as at ADD; what falls waits for nobody."""
    ports = pod.root / "run" / shared_ports.FILE
    ports.write_text(shared_ports.dump_shared_ports(((PF_PCI, OTHER_PF_PCI),)))
    pod.table.write("enp4s0f1", 0, VfSettings(25_000))
    pod.hand_over(OLD[0], VfRates(16_000), OLD[2])
    server = pod.server()
    server.look(0)
    assert "min rates of 101000 Mb/s, 25000 of them on other PFs of the same cable, would exceed" in str(pod.state())
    pod.hand_over(VfRates(39_000), VfRates(16_000), OLD[2], generation=2)
    server.look(1)
    assert pod.state() == RatesState("ns/p", 2, in_force=True)


@pytest.mark.parametrize("locked", [pci(1), PF_PCI])
def test_a_call_that_works_on_the_pod_is_not_disturbed(pod: Pod, locked: str) -> None:
    """Nothing is set while an ADD or a DEL has a VF or its PF; the next look does it."""
    pod.hand_over(*NEW)
    server = pod.server()
    with hold(pod.root / "run", locked, limit_s=0):
        server.look(0)
        assert [step for step in pod.steps if step != "record"] == []
    server.look(1)
    assert pod.rates() == NEW


def test_a_vf_that_is_on_its_way_back_with_old_rates_keeps_new_ones_from_being_in_force(pod: Pod) -> None:
    """Its PF may still have the old, larger one; once it is back, nothing of the pod has it."""
    entry = pod.ledger.read(pci(0))
    assert entry is not None
    pod.ledger.write(replace(entry, phase="returning"))
    pod.hand_over(VfRates(5_000), *OLD[1:])
    server = pod.server()
    server.look(0)
    assert pod.state() == RatesState("ns/p", 1, in_force=False)
    pod.ledger.remove(pci(0))
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)


def test_a_pod_without_a_sandbox_has_them_in_force_at_once(pod: Pod) -> None:
    """Its next ADD sets what is recorded."""
    pod.release()
    pod.hand_over(*NEW)
    pod.server().look(0)
    assert (pod.steps, pod.state()) == (["record"], RatesState("ns/p", 1, in_force=True))


def test_a_pod_that_is_not_recorded_yet_waits_for_its_record(pod: Pod) -> None:
    """Its sandbox is about to be made: the shim records it first."""
    path = pod.root / "state/pods/u1.json"
    text = path.read_text()
    path.unlink()
    pod.hand_over(*NEW)
    server = pod.server()
    server.look(0)
    assert pod.steps == []
    path.write_text(text)
    server.look(1)
    assert pod.rates() == NEW


def test_a_default_share_is_set_where_no_min_is_left(pod: Pod) -> None:
    """The operator's share reserves nothing, and never exceeds the pod's own limit."""
    (pod.root / "state" / NAME).write_text(node_offer(default_share_mbps=500))
    pod.hand_over(VfRates(None, 300), VfRates(10_000), VfRates(2_000))
    pod.server().look(0)
    assert pod.rates() == (VfRates(300, 300), VfRates(10_000), VfRates(2_000))
    entry = pod.ledger.read(pci(0))
    assert entry is not None
    assert (entry.share, entry.reserved_mbps) == (True, 0)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)


def test_what_a_vf_on_its_way_back_refuses_is_nobodys_to_mend(pod: Pod, events: list[Any]) -> None:
    """Its rate is not known, so nothing is in force; but no owner is told that a NIC refuses."""
    entry = pod.ledger.read(pci(0))
    assert entry is not None
    pod.ledger.write(replace(entry, phase="returning"))
    pod.hand_over(VfRates(5_000), *OLD[1:])
    server = pod.server()
    server.look(0)
    for vf in (1, 2):
        pod.ledger.remove(pci(vf))
    whole = (pod.root / "vftable.json").read_text()
    table = json.loads(whole)
    del table["pfs"][PF]
    (pod.root / "vftable.json").write_text(json.dumps(table))
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=False)
    assert [one["event"] for one in events if one["log_level"] == "warning"] == ["rates are not in force yet"]
    (pod.root / "vftable.json").write_text(whole)
    pod.ledger.remove(pci(0))
    server.look(22)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)
