"""The machine's parts stand in one list, and are told of each event in its order, after the cache has it."""

import importlib
import pkgutil
from collections.abc import Iterable

import pytest

import scheduler
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed, Unreadable
from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.cache import Cache
from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.instructions import Evict, Instruction, Notice, Order, Result
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part, PodChange
from scheduler.state.machine import Machine
from scheduler.state.vfs.lost_vfs import LostVfOptions
from tests.scheduler.group_life import Life, MakeNode, MakePod, changed_event, claiming, identity


class Probe(Part):
    """A part that writes down what it is told, and what the cache has at that time."""

    def __init__(self, name: str, cache: Cache, log: list[str]) -> None:
        self._name, self._cache, self._log = name, cache, log

    def _note(self, event: str) -> None:
        self._log.append(f"{self._name} {event}")

    def _state(self, uid: str) -> str:
        return "assigned" if self._cache.assigned(uid) is not None else "unknown"

    def pod_updated(self, pod: Pod, now: float) -> None:
        self._note(f"updated {self._state(pod.metadata.uid)}")

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        self._note(f"assigned {self._state(change.assigned_pod.uid)}")
        return [Notice("pod", self._name)]

    def pod_unreadable(self, uid: str) -> None:
        self._note(f"unreadable {self._state(uid)}")

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._note(f"deleted {self._state(uid)}")

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        self._note(f"node {self._cache.node(node.name) == node}")
        return ()

    def node_removed(self, name: str, now: float) -> None:
        self._note(f"no node {self._cache.node(name)}")

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        self._note(f"finished {result}")
        return [Notice("pod", self._name)]

    def tick(self, now: float) -> Iterable[Instruction]:
        self._note("tick")
        return [Notice("pod", self._name)]

    def next_due(self) -> float | None:
        return 5.0 if self._name == "first" else None

    def repeat_reports(self) -> Iterable[Instruction]:
        return [Notice("pod", self._name)]

    def check(self) -> None:
        self._note("check")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def probed(log: list[str]) -> Machine:
    machine = Machine("mooring")
    machine.parts = tuple(Probe(name, machine.cache, log) for name in ("first", "second"))
    machine.event_handlers.parts = machine.parts
    return machine


def both(event: str) -> list[str]:
    return [f"first {event}", f"second {event}"]


def test_every_part_stands_in_the_list() -> None:
    for module in pkgutil.walk_packages(scheduler.__path__, "scheduler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    own = {kind for kind in Part.__subclasses__() if kind.__module__.startswith("scheduler.")}
    assert {type(part) for part in Machine("mooring").parts} >= own


def test_parts_are_told_of_all_in_their_order(
    probed: Machine, log: list[str], make_node: MakeNode, make_pod: MakePod
) -> None:
    """The cache has the event before them, but for a pod in general; the earliest of their times counts."""
    notices = [Notice("pod", "first"), Notice("pod", "second")]
    node, pod = make_node("n1"), make_pod(node="n1")
    assert probed.nodes(changed_event(node), 0.0) == []
    assert log == both("node True")
    log.clear()
    assert probed.pods(changed_event(pod), 0.0) == notices
    assert log == [*both("updated unknown"), *both("assigned assigned")]
    log.clear()
    (assigned,) = probed.cache.assigned_pods_on("n1")
    assert probed.finished(Evict(pod_reference(assigned), "why"), "gone", 0.0) == notices
    assert probed.tick(0.0) == notices
    probed.check()
    assert probed.repeat_reports() == notices
    assert probed.next_due() == 5.0
    assert log == [*both("finished gone"), *both("tick"), *both("check")]
    log.clear()
    probed.pods(Unreadable(identity(pod), "odd"), 0.0)
    probed.pods(Removed(identity(pod)), 0.0)
    probed.nodes(Removed(Identity("n1")), 0.0)
    assert log == [*both("unreadable assigned"), *both("deleted unknown"), *both("no node None")]


def test_a_pod_that_never_started_has_lost_no_vfs(life: Life) -> None:
    """Lost VFs come after what has never started in the list: a pod is known to have started before it is judged."""
    life = life.successor(Machine("mooring", lost_vf_options=LostVfOptions(after_s=10.0)))
    life.show_node("n1", life.make_pf(vfs=2, out=(Out(Indexes.of([0, 1]), "bound to vfio-pci"),)))
    life.see(claiming(life.make_pod(node="n1"), 0))
    assert life.machine.lost_vfs.next_due() is None
    life.see(claiming(life.make_pod(node="n1", status={"phase": "Running"}), 1))
    assert life.machine.lost_vfs.next_due() == 10.0
    life.machine.check()
