"""The recording that the hardware test compares a card with."""

from dataclasses import replace

from bench.nic.cases import FIRST, of_one_vf
from cli.node.hardware.plan.recorded import (
    Case,
    Outcome,
    Recording,
    difference,
    dump_recording,
    outcome,
    read_recording,
)
from cli.node.hardware.vf_life import RECORDING
from mooring.nic.settings import VfSettings


def test_a_card_that_does_as_recorded_has_no_difference_and_another_is_described() -> None:
    first = VfSettings(vlan=0, trust=False)
    case = Case((VfSettings(vlan=7), VfSettings(trust=True)), Outcome(("ok", "EINVAL"), {"vlan": 7}))
    answers = ("ok", "EINVAL")
    assert difference(case, outcome(first, answers, replace(first, vlan=7))) is None
    assert difference(case, outcome(first, answers, first)) == {
        "steps": [{"vlan": 7}, {"trust": True}],
        "recorded": {"answers": ["ok", "EINVAL"], "settings": {"vlan": 7}},
        "card": {"answers": ["ok", "EINVAL"], "settings": {}},
    }
    assert difference(case, outcome(first, ("ok", "ok"), replace(first, vlan=7))) is not None


def test_the_recording_reads_as_it_was_written_and_has_refusals_and_effects() -> None:
    """A multicast MAC is refused (mlx5_esw_set_vport_mac_locked); the last of two values is in force."""
    recording = read_recording(RECORDING.read_text())
    assert isinstance(recording, Recording)
    assert dump_recording(recording) == RECORDING.read_text()
    by_steps = {case.steps: case.recorded for case in recording.cases}
    assert by_steps[VfSettings(mac="01:00:5e:00:00:01"),] == Outcome(("EINVAL",), {})
    assert by_steps[VfSettings(vlan=4094),] == Outcome(("ok",), {"vlan": 4094})
    assert by_steps[VfSettings(trust=True), VfSettings(trust=False)] == Outcome(("ok", "ok"), {})


def test_the_recording_has_the_cases_of_the_matrix() -> None:
    """After a change of the matrix, `python -m bench.nic_differences --record` writes the recording again."""
    recording = read_recording(RECORDING.read_text())
    assert recording.first == VfSettings(**FIRST)
    steps = [tuple(VfSettings(**step.settings) for step in case.steps[1:]) for case in of_one_vf()]
    assert [case.steps for case in recording.cases] == steps
