"""Members on one node are packed together where the last of them fits beside the others only so."""

import json
from typing import Any

import pytest

from mooring import names
from mooring.kube.events import Changed, Identity
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import Life, binds

# What a rule about other pods reads does not depend on the PFs.
_SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "rack",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "g"}},
        }
    ]
}


@pytest.mark.parametrize(
    ("vfs", "rates"),
    [
        ((4, 2, 3), [(20, 40), (40,), (30,), (50,), (60, 40)]),
        ((4, 4, 4), [(20, 40)] * 5),
        ((2, 4, 2), [(20, 40)] * 4),
        ((1, 4, 1), [(30,), (60, 20), (40, 70)]),
    ],
)
@pytest.mark.parametrize("spec", [{}, _SPREAD])
def test_members_with_distinct_pfs_are_packed_together(
    make_node: MakeNode,
    make_pf: MakePf,
    make_pod: MakePod,
    vfs: tuple[int, ...],
    rates: list[tuple[int, ...]],
    spec: dict[str, Any],
) -> None:
    life = Life(Machine("mooring"), make_node, make_pf, make_pod)
    pfs = tuple(make_pf(k, count, mbps=100_000, offer_mbps=100_000) for k, count in enumerate(vfs))
    life.machine.nodes(Changed(Identity("n1"), make_node("n1", pfs, labels={"rack": "a"})), life.now)
    annotations = {names.GROUP: json.dumps({"name": "g", "min": len(rates)}), names.PLACEMENT: '{"pfs":"distinct"}'}
    requests = ([{"min_tx_rate": 1000 * rate} for rate in of_one] for of_one in rates)
    metadata = {"labels": {"app": "g"}, "annotations": annotations}
    life.see(
        *(
            make_pod(f"m{k}", one, annotations=annotations, metadata=metadata, spec=spec)
            for k, one in enumerate(requests)
        )
    )
    bound = binds(life.work())
    assert len(bound) == len(rates)
    for one in bound:
        assert one.assigned.assignment is not None
        given = [vf.pf for vf in one.assigned.assignment.vfs]
        assert len(set(given)) == len(given)


def test_a_member_with_distinct_pfs_may_need_what_another_one_has(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Both VFs of the one that came first may be on the PF with three."""
    life = Life(Machine("mooring"), make_node, make_pf, make_pod)
    life.machine.nodes(Changed(Identity("n1"), make_node("n1", (make_pf(0, 1), make_pf(1, 3)))), life.now)
    annotations = {names.GROUP: json.dumps({"name": "g", "min": 2})}
    distinct = annotations | {names.PLACEMENT: '{"pfs":"distinct"}'}
    spread = annotations | {names.PLACEMENT: '{"pfs":"spread"}'}
    life.see(make_pod("m0", [{}, {}], annotations=spread), make_pod("m1", [{}, {}], annotations=distinct))
    assert len(binds(life.work())) == 2
