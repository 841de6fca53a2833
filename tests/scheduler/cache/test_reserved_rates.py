"""What a pod reserves whose rates change while it runs: by what the API says, and by what is written."""

from dataclasses import replace

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.rates import PodRates, RatesInForce, VfRates, dump_rates, dump_rates_in_force
from mooring.kube.events import Identity, Removed
from mooring.nic.settings import VfSettings
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import binds
from tests.scheduler.state.steps import annotated, notices, remove, steps, take_in

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


class Stage:
    """A node with one PF, and a pod there."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine, self.make_pod = machine, make_pod
        self._make_node, self._make_pf = make_node, make_pf
        self.node()
        self.own = make_pod(name="p", node="n1", metadata={"uid": "uid-p"}, annotations=self._annotations(None))
        take_in(machine, self.own)

    def node(self, **in_force: int) -> None:
        """Let the node say which generations are in force."""
        text = dump_rates_in_force(RatesInForce({"uid-" + name: one for name, one in in_force.items()}))
        take_in(self.machine, self._make_node("n1", (self._make_pf(),), annotations={names.RATES_IN_FORCE: text}))

    def rates(self, rates: PodRates | str | None) -> list[object]:
        """Let the API server show the pod with these rates."""
        text = dump_rates(rates) if isinstance(rates, PodRates) else rates
        return list(take_in(self.machine, annotated(self.own, self._annotations(text))))

    def _annotations(self, rates: str | None) -> dict[str, str]:
        given = {names.ASSIGNMENT: dump_assignment(ASSIGNMENT)}
        return given if rates is None else given | {names.RATES: rates}

    @property
    def left(self) -> int:
        self.machine.check()
        return self.machine.cache.vf_accounting("n1").free_vfs.free_mbps


@pytest.fixture
def stage(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Stage:
    return Stage(machine, make_node, make_pf, make_pod)


def test_what_was_lowered_is_reserved_until_its_node_has_put_it_in_force(stage: Stage) -> None:
    """An older generation in force is not enough; and what its node takes back is reserved again."""
    assert stage.left == 70_000
    stage.rates(LOWERED)
    assert stage.left == 69_000
    stage.node(p=1)
    assert stage.left == 84_000
    stage.rates(replace(LOWERED, generation=2, rates=(VfRates(), VfRates()), reserved=(5_000, 1_000)))
    assert stage.left == 84_000
    stage.node(p=2)
    assert stage.left == 90_000
    stage.node()
    assert stage.left == 84_000


def test_a_pod_that_waits_for_bandwidth_comes_again_once_lowered_rates_are_in_force(stage: Stage) -> None:
    """Not before: until then the VF may have its old rate."""
    take_in(stage.machine, stage.make_pod(request=[{"min_tx_rate": 80_000}]))
    assert binds(steps(stage.machine)) == []
    stage.rates(LOWERED)
    assert binds(steps(stage.machine, 100.0)) == []
    stage.node(p=1)
    assert len(binds(steps(stage.machine, 200.0))) == 1


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
    told = stage.rates(shown)
    assert stage.left == 59_000
    assert len(notices(told)) == (shown is not None and shown != dump_rates(LOWERED))  # type: ignore[arg-type]


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
    remove(stage.machine, stage.own)
    assert stage.left == 90_000


def test_what_a_node_says_and_cannot_be_read_leaves_what_it_said(
    stage: Stage, make_node: MakeNode, make_pf: MakePf
) -> None:
    """It is reported like an inventory that cannot be read."""
    stage.rates(LOWERED)
    stage.node(p=1)
    told = take_in(stage.machine, make_node("n1", (make_pf(),), annotations={names.RATES_IN_FORCE: "[]"}))
    assert stage.left == 84_000
    assert [one.subject for one in notices(told)] == ["inventory"]
    take_in(stage.machine, make_node("n1", (make_pf(),)))
    assert stage.left == 69_000


def test_rates_of_a_pod_whose_node_is_gone_for_a_while_count_again(
    stage: Stage, make_node: MakeNode, make_pf: MakePf
) -> None:
    """A node that comes back has put nothing in force before it says so."""
    stage.rates(LOWERED)
    stage.node(p=1)
    stage.machine.nodes(Removed(Identity("n1")), 0.0)
    take_in(stage.machine, make_node("n1", (make_pf(),)))
    assert stage.left == 69_000
