"""The machine's parts stand in one list, and are told of each event in its order, after the cache has it."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import scheduler
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed, Unreadable
from scheduler.cache.assigned_pod import pod_reference
from scheduler.cycle.instructions import Evict, Notice
from scheduler.pending.part import Part
from scheduler.state.machine import Machine
from scheduler.state.vfs.lost_vfs import LostVfOptions
from tests.scheduler.group_life import Life, MakeNode, MakePod, changed_event, claiming, identity

EVENTS = [name for name in vars(Part) if not name.startswith("_")]


def probe(name: str, machine: Machine, log: list[str]) -> Part:
    """Return a part that writes down each event, and what the cache has then of pod p and node n1."""

    def record(event: str) -> Callable[..., Any]:
        def note(*_: object) -> Any:
            if event == "next_due":
                return 5.0 if name == "first" else None
            pod = "pod" if machine.cache.assigned("p") is not None else ""
            log.append(f"{name} {event}: {pod} {'node' if machine.cache.node('n1') is not None else ''}".rstrip(" :"))
            return [Notice("pod", name)]

        return note

    part: Part = type("Probe", (Part,), {event: record(event) for event in EVENTS})()
    return part


def test_every_part_stands_in_the_list() -> None:
    for module in pkgutil.walk_packages(scheduler.__path__, "scheduler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    own = {kind for kind in Part.__subclasses__() if kind.__module__.startswith("scheduler.")}
    assert {type(part) for part in Machine("mooring").parts} >= own


def test_parts_are_told_of_all_in_their_order(make_node: MakeNode, make_pod: MakePod) -> None:
    """The cache has the event before them, but for a pod in general; the earliest of their times counts."""
    machine, log = Machine("mooring"), list[str]()
    machine.parts = machine.event_handlers.parts = tuple(probe(name, machine, log) for name in ("first", "second"))
    node, pod = make_node("n1"), make_pod("p", node="n1", metadata={"uid": "p"})
    notices = [Notice("pod", "first"), Notice("pod", "second")]

    def told(*events: str) -> bool:
        found = [*log]
        log.clear()
        return found == [f"{name} {event}" for event in events for name in ("first", "second")]

    assert machine.nodes(changed_event(node), 0.0) == notices
    assert told("node_changed:  node")
    assert machine.pods(changed_event(pod), 0.0) == notices
    assert told("pod_updated:  node", "pod_assigned: pod node")
    (assigned,) = machine.cache.assigned_pods_on("n1")
    assert machine.finished(Evict(pod_reference(assigned), "why"), "gone", 0.0) == notices
    assert told("finished: pod node")
    assert machine.tick(0.0) == machine.repeat_reports() == notices
    assert told("tick: pod node", "repeat_reports: pod node")
    machine.check()
    assert told("check: pod node")
    assert machine.next_due() == 5.0
    machine.pods(Unreadable(identity(pod), "odd"), 0.0)
    assert told("pod_unreadable: pod node")
    machine.pods(Removed(identity(pod)), 0.0)
    assert told("pod_deleted:  node")
    machine.nodes(Removed(Identity("n1")), 0.0)
    assert told("node_removed")


def test_a_pod_that_never_started_has_lost_no_vfs(life: Life) -> None:
    """Lost VFs come after what has never started in the list: a pod is known to have started before it is judged."""
    life = life.successor(Machine("mooring", lost_vf_options=LostVfOptions(after_s=10.0)))
    life.show_node("n1", life.make_pf(vfs=2, out=(Out(Indexes.of([0, 1]), "bound to vfio-pci"),)))
    life.see(claiming(life.make_pod(node="n1"), 0))
    assert life.machine.lost_vfs.next_due() is None
    life.see(claiming(life.make_pod(node="n1", status={"phase": "Running"}), 1))
    assert life.machine.lost_vfs.next_due() == 10.0
    life.machine.check()
