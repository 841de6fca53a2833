"""Two live pods that claim one unit of a kind: reported as for VFs, and free units are counted."""

from collections.abc import Iterable

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.server.metrics import _MachineCollector
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import BOXES, Life, units_of


@pytest.fixture
def life(start_life: StartLife) -> Life:
    return start_life(BOXES)


def claim(life: Life, name: str, *units: str, vfs: tuple[AssignedVf, ...] = ()) -> list[str]:
    """Show an assigned pod that claims these boxes and VFs; its uid is its name. Return the log lines and reports."""
    pod = life.make_pod(name, node="n1", metadata={"uid": name})
    assignment = Assignment(name, "n1", vfs, {"box": {"units": [*units]}})
    pod.metadata.annotations = {names.ASSIGNMENT: dump_assignment(assignment)}
    return told(life.see(pod))


def told(instructions: Iterable[Instruction]) -> list[str]:
    """Return the log lines, then the reports."""
    found = list(instructions)
    notices = [f"{one.event}: {dict(one.fields)}" for one in found if isinstance(one, Notice)]
    return notices + [f"{one.pod.key} {one.reason}: {one.message}" for one in found if isinstance(one, Report)]


def end(life: Life, name: str) -> None:
    life.gone(life.make_pod(name, metadata={"uid": name}))


def figures(life: Life) -> tuple[float, float, float]:
    """Return the gauges: the kind's free and disputed units, and disputed VFs."""
    samples = [sample for metric in _MachineCollector(life.machine).collect() for sample in metric.samples]
    values = {one.name: one.value for one in samples if one.labels == {"kind": "box"} or one.name.endswith("_vfs")}
    free, disputed = values["mooring_free_units"], values["mooring_disputed_units"]
    return free, disputed, values["mooring_disputed_vfs"]


def test_a_unit_that_two_pods_claim_is_reported(life: Life) -> None:
    """Both by an event, and by the log with the unit; once, and by the next leader again as long as it stands."""
    life.show_node(box="a b")
    assert claim(life, "one", "a") == []
    claimed = "claimed by default/one, default/two"
    about = {"node": "n1", "pod": "default/two", "uid": "two", "reason": claimed, "constraint": "box", "unit": "a"}
    rule = f"box a of node n1 is {claimed}: it is not assigned again until all of them are gone"
    expected = [f"unit is claimed twice: {about}"]
    expected += [f"default/{name} DisputedUnit: {rule}" for name in ("one", "two")]
    assert claim(life, "two", "b", "a") == expected
    assert told(life.machine.repeat_reports()) == expected
    assert claim(life, "two", "b", "a") == []
    assert figures(life) == (0, 1, 0)
    end(life, "one")
    assert told(life.machine.repeat_reports()) == []
    assert figures(life) == (0, 0, 0)


def test_a_unit_that_two_pods_claim_is_free_when_both_are_gone(life: Life) -> None:
    life.show_node(box="a b")
    claim(life, "one", "a")
    claim(life, "two", "a")
    assert units_of(life.outcome(life.asking(box="1")), "box") == ["b"]
    assert isinstance(life.outcome(life.asking(box="1")), str)
    end(life, "one")
    assert not isinstance(life.decide(), Bind)
    end(life, "two")
    assert units_of(life.decide(), "box") == ["a"]


def test_a_unit_that_the_node_does_not_have_is_not_disputed(life: Life) -> None:
    """Nor is one that a single pod names twice."""
    life.show_node(box="a b")
    assert claim(life, "one", "c", "b", "b") == claim(life, "two", "c") == []


def test_a_dispute_is_found_when_the_node_is_known_at_last(life: Life) -> None:
    """Pods may be listed before their nodes, and inventories mended."""
    assert claim(life, "one", "a") == claim(life, "two", "a") == told(life.show_node()) == []
    assert len(told(life.show_node(box="a"))) == 3
    assert figures(life)[1] == 1


def test_a_vf_and_a_unit_are_disputed_at_once(life: Life) -> None:
    pf = life.make_pf(vfs=1)
    life.show_node("n1", pf, box="a")
    vf = AssignedVf(pf.name, 0, pf.vf_pci(0), pf.link, pf.network)
    claim(life, "one", "a", vfs=(vf,))
    found = claim(life, "two", "a", vfs=(vf,))
    assert sorted(one.split()[1] for one in found if one.startswith("default")) == 2 * ["DisputedUnit:"] + 2 * [
        "DisputedVf:"
    ]
    assert life.machine.vf_disputes.dispute_counts == {"vfs": 1, "box": 1}
