"""Pods of runtime classes whose handler a node's CRI shim rejects."""

from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.annotations.inventory import Inventory, dump_inventory
from mooring.kube.events import Changed, Identity, Removed, Synced
from scheduler.kube.objects import RuntimeClass
from scheduler.state.machine import Machine
from tests.scheduler.conftest import BOOT
from tests.scheduler.group_life import binds
from tests.scheduler.state.steps import MakeNode, MakePf, MakePod, reports_of, steps, take_in


def _class(machine: Machine, name: str, handler: str, now: float = 0.0) -> None:
    item = msgspec.convert({"metadata": {"name": name, "uid": name}, "handler": handler}, RuntimeClass)
    machine.handle(RuntimeClass, Changed(Identity(name), item), now)


@pytest.fixture
def pods_on(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Any:
    """Decide about a pod of a class, with or without VFs, on one node; return where it went, or why it waits."""

    def decide(handlers: frozenset[str] | None, runtime_class: str | None, request: object = None) -> str | list[str]:
        inventory = dump_inventory(Inventory(BOOT, (make_pf(),), handlers=handlers))
        take_in(machine, make_node("n1", pfs=(make_pf(),), annotations={names.INVENTORY: inventory}))
        take_in(machine, make_pod(request=request, spec={"runtimeClassName": runtime_class}))
        instructions = steps(machine)
        return [bind.assigned.node for bind in binds(instructions)] or reports_of(instructions)

    return decide


@pytest.mark.parametrize(
    ("handlers", "runtime_class", "request_", "fits"),
    [
        (frozenset({"runc"}), "virtual", [{}], False),
        (frozenset({"runc"}), "fast", [{}], True),
        (frozenset({"runc"}), None, [{}], True),
        # Without VFs the shim lets it through; without the list, or the class, nobody knows.
        (frozenset({"runc"}), "virtual", None, True),
        (None, "virtual", [{}], True),
        (frozenset({"runc"}), "unlisted", [{}], True),
    ],
)
def test_a_pod_with_vfs_waits_where_the_shim_rejects_its_handler(
    handlers: frozenset[str] | None,
    runtime_class: str | None,
    request_: object,
    fits: bool,
    machine: Machine,
    pods_on: Any,
) -> None:
    """A class's name is not its handler's: OpenShift's performance profiles have classes of other names."""
    _class(machine, "virtual", "kata")
    _class(machine, "fast", "runc")
    expected = ["n1"] if fits else ["0/1 nodes are available: 1 node(s) gave no VFs to pods of runtime handler 'kata'."]
    assert pods_on(handlers, runtime_class, request_) == expected


def test_a_class_that_is_listed_later_counts_and_a_deleted_one_rejects_no_pod(machine: Machine, pods_on: Any) -> None:
    _class(machine, "virtual", "kata")
    assert "kata" in pods_on(frozenset({"runc"}), "virtual", [{}])[0]
    machine.handle(RuntimeClass, Removed(Identity("virtual")), 60.0)
    (bind,) = binds(steps(machine, 60.0))
    assert bind.assigned.node == "n1"


def test_a_class_that_is_listed_late_counts_for_pods_of_a_shape_that_was_judged_before(
    machine: Machine, pods_on: Any
) -> None:
    assert pods_on(frozenset({"runc"}), "virtual", [{}]) == ["n1"]
    _class(machine, "virtual", "kata")
    assert "kata" in pods_on(frozenset({"runc"}), "virtual", [{}])[0]


def test_a_new_list_without_a_class_removes_it(machine: Machine, pods_on: Any) -> None:
    _class(machine, "virtual", "kata")
    assert "kata" in pods_on(frozenset({"runc"}), "virtual", [{}])[0]
    machine.handle(RuntimeClass, Synced(()), 60.0)
    assert binds(steps(machine, 60.0))
