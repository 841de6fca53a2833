"""A node's reason says which part of an interface's request leaves it no PF."""

from typing import Any

import pytest

from mooring.annotations.request import NO_RAIL, VfRequest
from mooring.nic.settings import VfSettings
from scheduler.placement.eligibility import unmet_part
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json, MakeNode, MakePf, MakePod
from tests.scheduler.group_life import told
from tests.scheduler.state.steps import take_in

# Two slow ones of rail0, and a fast one of storage that is InfiniBand.
PFS: list[Json] = [
    {"network": "rail0", "mbps": 100_000, "offer_mbps": 90_000},
    {"network": "rail0", "mbps": 100_000, "offer_mbps": 90_000},
    {"network": "storage", "mbps": 400_000, "offer_mbps": 390_000, "link": "infiniband"},
]


def _unmet(make_pf: MakePf, rate: int = 0, down: tuple[int, ...] = (), **fields: Any) -> str:
    pfs = [make_pf(number, up=number not in down, **one) for number, one in enumerate(PFS)]
    return unmet_part(VfRequest(VfSettings(min_tx_rate=rate), **fields), pfs)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"network": "rail9"}, "on network 'rail9'"),
        ({"pf": "eth*"}, "named 'eth*'"),
        ({"rail": 2}, "on network number 3"),
        ({"rail": NO_RAIL}, "on the group's network"),
        ({"rate": 400_000}, "fast enough for 400000 Mb/s"),
        ({"rate": 1, "down": (0, 1, 2)}, "with its link up"),
        # A part that other PFs of the node meet names the parts before it: the user may change either.
        ({"network": "storage", "pf": "pf0"}, "named 'pf0' among those on network 'storage'"),
        ({"network": "rail0", "link": "infiniband"}, "of link type 'infiniband' among those on network 'rail0'"),
        ({"network": "rail0", "rate": 200_000}, "fast enough for 200000 Mb/s among those on network 'rail0'"),
        (
            {"pf": "pf[01]", "link": "ethernet", "rate": 200_000},
            "fast enough for 200000 Mb/s among those named 'pf[01]' and of link type 'ethernet'",
        ),
        ({"network": "storage", "rate": 1, "down": (2,)}, "with its link up among those on network 'storage'"),
        # A PF that is down has no rate to give, however fast it is.
        ({"rate": 200_000, "down": (2,)}, "fast enough for 200000 Mb/s"),
        # The first to narrow down is the reason: network before name, link type and rate.
        ({"network": "rail9", "pf": "eth*", "link": "none", "rate": 400_000}, "on network 'rail9'"),
        ({"pf": "eth*", "link": "none", "rate": 400_000}, "named 'eth*'"),
        ({"link": "none", "rate": 400_000}, "of link type 'none'"),
    ],
)
def test_the_part_of_a_request_that_leaves_no_pf_is_the_reason(fields: Json, reason: str, make_pf: MakePf) -> None:
    assert _unmet(make_pf, **fields) == f"node(s) had no PF {reason}"


def test_only_a_node_without_any_pf_has_a_reason_whatever_is_requested(make_pf: MakePf) -> None:
    assert unmet_part(VfRequest(network="rail0"), []) == unmet_part(VfRequest(), []) == "node(s) had no PF on offer"
    assert _unmet(make_pf) == ""


def test_nodes_are_counted_by_the_part_that_leaves_them_none(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    for name, fields in (("n1", {"network": "a"}), ("n2", {"link": "infiniband"}), ("n3", {"offer_mbps": 1_000})):
        pfs = (make_pf(**({"network": "b"} | fields)),)
        take_in(machine, make_node(name, pfs))
    pod = make_pod("p", [{"network": "b", "link": "ethernet", "min_tx_rate": 5_000}])
    take_in(machine, pod)
    found = machine.step(0.0)
    assert found is not None
    assert told(found)["p"].startswith(
        "0/3 nodes are available: 1 node(s) had no PF fast enough for 5000 Mb/s, "
        "1 node(s) had no PF of link type 'ethernet', 1 node(s) had no PF on network 'b'. preemption: "
    )
