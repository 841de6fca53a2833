"""Pods whose assignment would have a field that a node's programs do not read."""

from collections.abc import Mapping

import pytest

from mooring import names
from mooring.annotations.assignment import FIRST_RELEASE
from mooring.annotations.inventory import CNI, CRI_SHIM, Inventory, dump_inventory
from scheduler.state.machine import Machine
from tests.scheduler.conftest import BOOT
from tests.scheduler.group_life import binds
from tests.scheduler.state.steps import MakeNode, MakePf, MakePod, reports_of, steps, take_in

REFUSED = "0/1 nodes are available: 1 node(s) ran {}, which does not understand 'link_state' (since 0.10.0)."


@pytest.mark.parametrize(
    ("versions", "wish", "refused"),
    [
        ({CNI: "0.10.0", CRI_SHIM: "0.10.1"}, {"link_state": "enable"}, ""),
        ({CNI: "1.0.0rc1", CRI_SHIM: "0.10.0"}, {"link_state": "enable"}, ""),
        ({CNI: "0.9.0", CRI_SHIM: "0.10.0"}, {"link_state": "enable"}, "mooring-cni 0.9.0"),
        ({CNI: "0.10.0", CRI_SHIM: "0.9.0"}, {"link_state": "enable"}, "mooring-cri-shim 0.9.0"),
        ({CNI: "0.10.0", CRI_SHIM: "unknown"}, {"link_state": "enable"}, "mooring-cri-shim unknown"),
        # An inventory of another program than Mooring's advertiser.
        ({}, {"link_state": "enable"}, "mooring-cni unknown"),
        # What the pod does not request is not in its assignment.
        ({CNI: "0.9.0", CRI_SHIM: "0.9.0"}, {"max_tx_rate": 1000}, ""),
    ],
)
def test_a_pod_waits_where_a_program_does_not_read_what_it_requests(
    versions: Mapping[str, str],
    wish: Mapping[str, object],
    refused: str,
    machine: Machine,
    make_node: MakeNode,
    make_pf: MakePf,
    make_pod: MakePod,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node would reject the assignment; no field of today is later than the oldest release."""
    monkeypatch.setitem(FIRST_RELEASE, "link_state", "0.10.0")
    inventory = dump_inventory(Inventory(BOOT, (make_pf(),), programs=versions))
    take_in(machine, make_node("n1", pfs=(make_pf(),), annotations={names.INVENTORY: inventory}))
    take_in(machine, make_pod(request=[wish]))
    instructions = steps(machine)
    outcome = [bind.assigned.node for bind in binds(instructions)] or reports_of(instructions)
    assert outcome == ([REFUSED.format(refused)] if refused else ["n1"])
