"""What a bound pod holds: by its assignment, and by its rates, which change while it runs."""

from dataclasses import replace

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.rates import PodRates, RatesInForce, VfRates, dump_rates, dump_rates_in_force
from mooring.nic.settings import VfSettings
from scheduler.cache.assigned_pod import AssignedPod, read_assigned_pod
from scheduler.cycle.instructions import Instruction
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import Life, notices

# Of the PF's 90,000 Mb/s the pod has 20,000 by its assignment.
ASSIGNMENT = Assignment(
    "uid-p",
    "n1",
    (
        AssignedVf("pf0", 0, "0000:04:00.2", "ethernet", "rail0", VfSettings(min_tx_rate=20_000)),
        AssignedVf("pf0", 1, "0000:04:00.3", "ethernet", "rail0"),
    ),
)
LOWERED = PodRates("uid-p", "n1", 1, (VfRates(5_000), VfRates(1_000)), (20_000, 1_000))


class Stage(Life):
    """A node with one PF, and a pod there."""

    def node(self, **in_force: int) -> None:
        """Let the node publish which generations are in force."""
        self.publish(dump_rates_in_force(RatesInForce({"uid-" + name: one for name, one in in_force.items()})))

    def publish(self, in_force: str | None) -> list[Instruction]:
        annotations = {} if in_force is None else {names.RATES_IN_FORCE: in_force}
        return self.show_node("n1", self.make_pf(), annotations=annotations)

    def rates(self, rates: PodRates | str | None) -> list[Instruction]:
        """Let the API server show the pod with these rates."""
        text = dump_rates(rates) if isinstance(rates, PodRates) else rates
        annotations = {names.ASSIGNMENT: dump_assignment(ASSIGNMENT)} | ({} if text is None else {names.RATES: text})
        self.own = self.make_pod(name="p", node="n1", metadata={"uid": "uid-p"}, annotations=annotations)
        return self.see(self.own)

    @property
    def left(self) -> int:
        self.machine.check()
        return self.machine.cache.vf_accounting("n1").free_vfs.free_mbps


@pytest.fixture
def stage(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Stage:
    stage = Stage(machine, make_node, make_pf, make_pod)
    stage.node()
    stage.rates(None)
    return stage


@pytest.mark.parametrize(
    "shown",
    [
        None,
        "{",
        dump_rates(replace(LOWERED, uid="uid-of-another", generation=3)),
        dump_rates(replace(LOWERED, node="n2", generation=3)),
        dump_rates(replace(LOWERED, rates=(VfRates(),), reserved=(0,), generation=3)),
        dump_rates(LOWERED),
    ],
)
def test_what_is_not_believed_leaves_what_was_known(shown: str | None, stage: Stage) -> None:
    """Removed, unreadable, another pod's, another node's, of another number of VFs, an older state."""
    stage.rates(replace(LOWERED, generation=2, reserved=(30_000, 1_000)))
    assert stage.left == 59_000
    reported = notices(stage.rates(shown))
    assert stage.left == 59_000
    assert len(reported) == (shown is not None and shown != dump_rates(LOWERED))


def test_what_is_being_written_counts_until_its_result_is_definite(stage: Stage) -> None:
    """At once, and whatever the watch shows of the pod meanwhile; a write that failed leaves what was."""
    raised = PodRates("uid-p", "n1", 1, (VfRates(50_000), VfRates()), (50_000, 0))
    stage.machine.cache.write_rates(raised)
    assert stage.left == 40_000
    stage.rates(None)
    assert stage.left == 40_000
    stage.machine.cache.finish_rates("uid-p", is_written=False)
    assert stage.left == 70_000
    stage.machine.cache.write_rates(raised)
    stage.machine.cache.finish_rates("uid-p", is_written=True)
    assert stage.left == 40_000
    # The watch is behind.
    stage.rates(None)
    assert stage.left == 40_000
    stage.node(p=1)
    assert stage.left == 40_000
    stage.gone(stage.own)
    assert stage.left == 90_000


def test_rates_in_force_that_cannot_be_read_leave_what_the_node_published_before(stage: Stage) -> None:
    """It is reported like an inventory that cannot be read. A node that publishes none has put nothing in force."""
    stage.rates(LOWERED)
    stage.node(p=1)
    found = stage.publish("[]")
    assert stage.left == 84_000
    assert [one.subject for one in notices(found)] == ["inventory"]
    stage.publish(None)
    assert stage.left == 69_000


def test_rates_of_a_pod_whose_node_is_gone_for_a_while_count_again(stage: Stage) -> None:
    """A node that comes back has put nothing in force before it publishes so."""
    stage.rates(LOWERED)
    stage.node(p=1)
    stage.remove_node("n1")
    stage.publish(None)
    assert stage.left == 69_000


def _given(uid: str = "uid-0", node: str = "n1", vf: int = 0) -> Assignment:
    assigned = AssignedVf(pf="pf0", vf=vf, pci=f"0000:04:00.{2 + vf}", link="ethernet", network="rail0")
    return Assignment(uid, node, (assigned,))


@pytest.mark.parametrize(
    ("shown", "known", "is_valid"),
    [
        pytest.param(_given(vf=1), _given(), True, id="another VF"),
        pytest.param(_given("uid-9"), _given(), False, id="another pod's"),
        pytest.param(_given(node="n2"), _given(), False, id="another node's"),
        pytest.param(_given(), _given(), True, id="the same"),
        pytest.param(_given(node="n2"), _given(node="n2"), False, id="the same, but another scheduler bound the pod"),
    ],
)
@pytest.mark.parametrize("assumed", [False, True])
def test_an_assignment_is_verified_against_its_pod(
    shown: Assignment, known: Assignment, is_valid: bool, assumed: bool, make_pod: MakePod
) -> None:
    """Uid and node must be those of the pod, whatever was known; an invalid annotation does not take its VF away.

    One that has not changed stays the same object, so that it is in memory once.
    """
    before = AssignedPod("uid-0", "default/p0", known.node, assignment=known, assumed=assumed)
    annotations = {names.ASSIGNMENT: dump_assignment(shown)}
    pod = make_pod(node="n1", metadata={"uid": "uid-0"}, annotations=annotations)
    assigned, notices = read_assigned_pod(pod, before)
    is_kept = not assumed and known.node == "n1"
    assert assigned.assignment == (shown if is_valid else known if is_kept else None)
    assert (assigned.assignment is known) == (shown == known if is_valid else is_kept)
    assert bool(notices) != is_valid
    assert not assigned.assumed
