"""Two live pods that claim one unit of a kind: reported as for VFs, and free units are counted."""

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.events import Changed, Identity
from scheduler.constraints.kinds import Kind, Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.kube.objects import Pod
from scheduler.server.metrics import _MachineCollector
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import Boxes, Life, units_of


@pytest.fixture
def life(start_life: StartLife, make_node: MakeNode) -> Life:
    """Give a node with the boxes a and b."""
    life = start_life(Kinds([Kind("box", Boxes())]))
    life.see(make_node(annotations={"mooring.dev/inventory.box": "a b"}))
    return life


def claim(life: Life, pod: Pod, *units: str, vfs: tuple[AssignedVf, ...] = ()) -> list[Instruction]:
    """Show the machine an assigned pod that claims these boxes and VFs."""
    assignment = Assignment(pod.metadata.uid, "n1", vfs, {"box": {"units": [*units]}})
    pod.metadata.annotations = {names.ASSIGNMENT: dump_assignment(assignment)}
    return life.see(pod)


def told(instructions: list[Instruction]) -> list[str]:
    """Return the log lines, then the reports."""
    notices = [f"{one.event}: {dict(one.fields)}" for one in instructions if isinstance(one, Notice)]
    return notices + [f"{one.pod.key} {one.reason}: {one.message}" for one in instructions if isinstance(one, Report)]


def figures(life: Life) -> dict[str, float]:
    """Return the gauges of the kind, and that of disputed VFs."""
    samples = [sample for metric in _MachineCollector(life.machine).collect() for sample in metric.samples]
    return {
        sample.name: sample.value
        for sample in samples
        if sample.labels == {"kind": "box"} or sample.name == "mooring_disputed_vfs"
    }


def test_a_unit_that_two_pods_claim_is_reported(life: Life, make_pod: MakePod) -> None:
    """Both by an event, and by the log with the unit; once, and by the next leader again as long as it stands."""
    one, two = make_pod("one", node="n1"), make_pod("two", node="n1")
    assert told(claim(life, one, "a")) == []
    about = {"node": "n1", "pod": "default/two", "uid": two.metadata.uid}
    about |= {"reason": "claimed by default/one, default/two", "constraint": "box", "unit": "a"}
    message = (
        "box a of node n1 is claimed by default/one, default/two: it is not assigned again until all of them are gone"
    )
    expected = [f"unit is claimed twice: {about}"]
    expected += [f"default/{name} DisputedUnit: {message}" for name in ("one", "two")]
    assert told(claim(life, two, "b", "a")) == expected
    assert told(life.machine.repeat_reports()) == expected
    assert told(life.see(two)) == []
    assert figures(life) == {"mooring_free_units": 0, "mooring_disputed_units": 1, "mooring_disputed_vfs": 0}
    life.end(one)
    assert told(life.machine.repeat_reports()) == []
    assert figures(life) == {"mooring_free_units": 0, "mooring_disputed_units": 0, "mooring_disputed_vfs": 0}


def test_a_disputed_unit_is_given_when_all_who_claim_it_are_gone(life: Life, make_pod: MakePod) -> None:
    one, two = make_pod("one", node="n1"), make_pod("two", node="n1")
    claim(life, one, "a")
    claim(life, two, "a")
    asking = [make_pod(annotations={"mooring.dev/request.box": "1"}) for _ in range(2)]
    assert units_of(life.place(asking[0]), "box") == ["b"]
    assert isinstance(life.place(asking[1]), str)
    life.end(one)
    assert not isinstance(life.step(), Bind)
    life.end(two)
    assert units_of(life.step(), "box") == ["a"]


def test_a_unit_that_the_node_does_not_have_is_not_disputed(life: Life, make_pod: MakePod) -> None:
    """Nor is one that a single pod names twice."""
    assert told(claim(life, make_pod("one", node="n1"), "c", "b", "b")) == []
    assert told(claim(life, make_pod("two", node="n1"), "c")) == []


def test_a_dispute_is_found_when_the_node_is_known_at_last(
    start_life: StartLife, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Pods may be listed before their nodes, and inventories mended."""
    life = start_life(Kinds([Kind("box", Boxes())]))
    for name in ("one", "two"):
        assert told(claim(life, make_pod(name, node="n1"), "a")) == []
    identity = Identity("n1")
    bare, full = make_node(), make_node(annotations={"mooring.dev/inventory.box": "a"})
    assert told(life.machine.nodes(Changed(identity, bare), life.now)) == []
    assert len(told(life.machine.nodes(Changed(identity, full), life.now))) == 3
    assert figures(life)["mooring_disputed_units"] == 1


def test_a_vf_and_a_unit_are_disputed_at_once(
    start_life: StartLife, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    life, pf = start_life(Kinds([Kind("box", Boxes())])), make_pf(vfs=1)
    life.see(make_node(pfs=(pf,), annotations={"mooring.dev/inventory.box": "a"}))
    vf = AssignedVf(pf.name, 0, pf.vf_pci(0), pf.link, pf.network)
    claim(life, make_pod("one", node="n1"), "a", vfs=(vf,))
    found = claim(life, make_pod("two", node="n1"), "a", vfs=(vf,))
    reasons = [one.reason for one in found if isinstance(one, Report)]
    assert sorted(reasons) == ["DisputedUnit", "DisputedUnit", "DisputedVf", "DisputedVf"]
    assert life.machine.vf_disputes.dispute_counts == {"vfs": 1, "box": 1}
