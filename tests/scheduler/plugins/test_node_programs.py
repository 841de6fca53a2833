"""Pods that a node's CRI shim or CNI plugin would reject: by a field of their assignment, or by their handler."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.annotations.assignment import FIRST_RELEASE
from mooring.annotations.inventory import CNI, CRI_SHIM, Inventory, dump_inventory
from mooring.kube.events import Changed, Identity, Removed, Synced
from scheduler.kube.objects import RuntimeClass
from scheduler.state.machine import Machine
from tests.scheduler.conftest import BOOT, Json, MakeNode, MakePf, MakePod
from tests.scheduler.group_life import binds
from tests.scheduler.state.steps import reports_of, steps, take_in

Decide = Callable[..., list[str]]
RELEASE = "0/1 nodes are available: 1 node(s) ran {}, which does not understand 'link_state' (since 0.10.0)."
HANDLER = "0/1 nodes are available: 1 node(s) gave no VFs to pods of runtime handler 'kata'."
RUNC = frozenset({"runc"})
LINK_STATE = {"link_state": "enable"}


def _class(machine: Machine, name: str, handler: str) -> None:
    item = msgspec.convert({"metadata": {"name": name, "uid": name}, "handler": handler}, RuntimeClass)
    machine.handle(RuntimeClass, Changed(Identity(name), item), 0.0)


@pytest.fixture
def decide(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Decide:
    """Decide about a pod of a class, with or without VFs, on one node; return where it went, or why it waits."""

    def decide(request: object, runtime_class: str | None = None, **inventory: Any) -> list[str]:
        text = dump_inventory(Inventory(BOOT, (make_pf(),), **inventory))
        take_in(machine, make_node("n1", pfs=(make_pf(),), annotations={names.INVENTORY: text}))
        take_in(machine, make_pod(request=request, spec={"runtimeClassName": runtime_class}))
        instructions = steps(machine)
        return [bind.assigned.node for bind in binds(instructions)] or reports_of(instructions)

    return decide


@pytest.mark.parametrize(
    ("versions", "wish", "refused"),
    [
        ({CNI: "0.10.0", CRI_SHIM: "0.10.1"}, LINK_STATE, ""),
        ({CNI: "1.0.0rc1", CRI_SHIM: "0.10.0"}, LINK_STATE, ""),
        ({CNI: "0.9.0", CRI_SHIM: "0.10.0"}, LINK_STATE, "mooring-cni 0.9.0"),
        ({CNI: "0.10.0", CRI_SHIM: "0.9.0"}, LINK_STATE, "mooring-cri-shim 0.9.0"),
        ({CNI: "0.10.0", CRI_SHIM: "unknown"}, LINK_STATE, "mooring-cri-shim unknown"),
        # An inventory of another program than Mooring's advertiser.
        ({}, LINK_STATE, "mooring-cni unknown"),
        # What the pod does not request is not in its assignment.
        ({CNI: "0.9.0", CRI_SHIM: "0.9.0"}, {"max_tx_rate": 1000}, ""),
    ],
)
def test_a_pod_waits_where_a_program_does_not_read_what_it_requests(
    versions: Json, wish: Json, refused: str, decide: Decide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node would reject the assignment; no field of today is later than the oldest release."""
    monkeypatch.setitem(FIRST_RELEASE, "link_state", "0.10.0")
    assert decide([wish], programs=versions) == ([RELEASE.format(refused)] if refused else ["n1"])


@pytest.mark.parametrize(
    ("handlers", "runtime_class", "request_", "fits"),
    [
        (RUNC, "virtual", [{}], False),
        (RUNC, "fast", [{}], True),
        (RUNC, None, [{}], True),
        # Without VFs the shim lets it through; without the list, or the class, nobody knows.
        (RUNC, "virtual", None, True),
        (None, "virtual", [{}], True),
        (RUNC, "unlisted", [{}], True),
    ],
)
def test_a_pod_with_vfs_waits_where_the_shim_rejects_its_handler(
    handlers: frozenset[str] | None,
    runtime_class: str | None,
    request_: object,
    fits: bool,
    machine: Machine,
    decide: Decide,
) -> None:
    """A class's name is not its handler's: OpenShift's performance profiles have classes of other names."""
    _class(machine, "virtual", "kata")
    _class(machine, "fast", "runc")
    assert decide(request_, runtime_class, handlers=handlers) == (["n1"] if fits else [HANDLER])


@pytest.mark.parametrize("event", [Removed(Identity("virtual")), Synced(())], ids=["deleted", "not listed"])
def test_a_class_that_is_listed_later_counts_and_one_that_is_gone_rejects_no_pod(
    event: Any, machine: Machine, decide: Decide
) -> None:
    """Also for pods of a shape that was judged before."""
    assert decide([{}], "virtual", handlers=RUNC) == ["n1"]
    _class(machine, "virtual", "kata")
    assert decide([{}], "virtual", handlers=RUNC) == [HANDLER]
    machine.handle(RuntimeClass, event, 60.0)
    (bind,) = binds(steps(machine, 60.0))
    assert bind.assigned.node == "n1"
