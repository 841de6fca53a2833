"""Which claims count: two pods that claim one VF, and what a node still holds."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Out, Pf
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity, Removed
from scheduler.constraints.protocol import VFS
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]


class Scene:
    """A machine, a node n1 with one VF, and pods that claim it."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine = machine
        self._make_node = make_node
        self._make_pf = make_pf
        self.make_pod = make_pod

    def node(self, **pf: Any) -> list[Instruction]:
        node = self._make_node(pfs=(self._make_pf(vfs=1, **pf),))
        return self.machine.nodes(Changed(Identity("n1"), node), 0.0)

    def claim(self, name: str) -> tuple[Identity, list[Instruction]]:
        """Show a bound pod that claims the VF."""
        pod = self.make_pod(name, node="n1")
        vfs = (
            AssignedVf(
                "pf0",
                0,
                "0000:04:00.2",
                "ethernet",
                "rail0",
            ),
        )
        document = msgspec.to_builtins(pod)
        text = dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))
        document["metadata"]["annotations"] = {names.ASSIGNMENT: text}
        identity = Identity(name, "default", pod.metadata.uid)
        return identity, self.machine.pods(Changed(identity, msgspec.convert(document, Pod)), 0.0)

    def binds(self, now: float) -> int:
        """Return for how many waiting pods there is a VF at that time."""
        found = 0
        while (instructions := self.machine.step(now)) is not None:
            found += sum(isinstance(one, Bind) for one in instructions)
        return found


@pytest.fixture
def scene(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Scene:
    return Scene(machine, make_node, make_pf, make_pod)


def _told(instructions: list[Instruction]) -> tuple[list[str], list[str]]:
    """Return the pods with a report, and the names in the log."""
    reports = [one.pod.key for one in instructions if isinstance(one, Report)]
    notices = [one.fields["reason"] for one in instructions if isinstance(one, Notice) and one.subject == "dispute"]
    return reports, notices


BOTH = (["default/one", "default/two"], ["claimed by default/one, default/two"])


@pytest.mark.parametrize("first", ["node", "pods"])
def test_a_vf_that_two_pods_claim_is_reported_whatever_is_listed_first(first: str, scene: Scene) -> None:
    """After a start nodes and pods come in any order: only together they show a dispute."""
    found = scene.node() if first == "node" else []
    for name in ("one", "two"):
        found += scene.claim(name)[1]
    found += scene.node() if first == "pods" else []
    assert _told(found) == BOTH
    assert scene.machine.vf_disputes.dispute_counts == {VFS: 1}


def test_a_dispute_is_reported_once(scene: Scene) -> None:
    """Not at each heartbeat of the node; a third claimant is news."""
    scene.node()
    scene.claim("one")
    scene.claim("two")
    assert _told(scene.node(numa=1)) == ([], [])
    assert len(_told(scene.claim("three")[1])[0]) == 3


def test_a_new_leader_reports_the_disputes_that_remain(scene: Scene) -> None:
    """The one before may have ended before it reported; a dispute that is over is not reported."""
    scene.node()
    (one, _), (_, _) = scene.claim("one"), scene.claim("two")
    assert _told(scene.machine.vf_disputes.repeat_reports()) == BOTH
    scene.machine.pods(Removed(one), 1.0)
    assert scene.machine.vf_disputes.repeat_reports() == []
    assert scene.machine.vf_disputes.dispute_counts == {}


def test_a_disputed_vf_is_given_when_both_pods_are_gone_and_the_node_has_it_back(scene: Scene) -> None:
    """Neither pod's end frees it, nor both together while the node's ledger holds it for one of them."""
    scene.node()
    one, two = (scene.claim(name)[0] for name in ("one", "two"))
    pod = scene.make_pod(request=[{}])
    scene.machine.pods(Changed(Identity("w", "default", pod.metadata.uid), pod), 0.0)
    assert scene.binds(now=0.0) == 0
    scene.machine.pods(Removed(one), 1.0)
    assert scene.binds(now=100.0) == 0
    scene.node(out=(Out(Indexes.of([0]), f"held by pod {one.uid}", min_tx_rate=5000),))
    scene.machine.pods(Removed(two), 101.0)
    assert scene.binds(now=200.0) == 0
    scene.node()
    assert scene.binds(now=300.0) == 1
