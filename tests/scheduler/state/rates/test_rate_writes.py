"""Writes of changed rates, and what is told of those that are not in force, or not any more."""

import pytest

from mooring import names
from mooring.annotations.assignment import Assignment, dump_assignment
from mooring.annotations.rates import LAST_GENERATION
from scheduler.server.metrics import _MachineCollector
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, as_bound
from tests.scheduler.state.rates.edited_rates import ONLY_RATES, EditedRates
from tests.scheduler.story import play

# A pod lowers its rate, which comes into force and is told.
LOWERED = "bind p 50 | edit p 10 | write > p:10/50 | force p 1 | told > InForce | tell p | told | left > 80 | wait 20"
EDITS = " | ".join(f"edit p {gbps} | order" for gbps in range(22, 30))

STORIES = {
    # A node says what it likes.
    "no generation is written that no reader would believe": f"""
        bind p 20 | force p {LAST_GENERATION} | edit p 10
        | told > Infeasible: node n1 reports that the last generation is in force""",
    "after a conflict nothing is reserved, a pod that waits gets it, and the edit is decided again": """
        bind p 20 | edit p 90 | order > p:90 | place q 70 | answer changed | left > 70 | wait 20 | schedule > q
        | told > Deferred: PF 'pf0': 70000 more Mb/s are needed, but other pods reserve too much""",
    "a pod has one write under way, a second passes between two, and the last edit counts": f"""
        bind p 20 | edit p 21 | order > p:21 | {EDITS} | answer written | watch | order | wait 1 | order > p:29
        | generations > 2""",
    "a refusal of the API server is told and tried again after a minute": """
        bind p 20 | edit p 30 | order > p:30 | answer refused no > Deferred: the API server rejected the rates: no
        | left > 70 | wait 59 | order | wait 2 | order > p:30""",
    "a pod that is deleted meanwhile keeps nothing": """
        bind p 20 | edit p 30 | order > p:30 | gone p | left > 90 | answer written | left > 90 | due > None""",
    # Also of a pod about which nothing was left to do, and of which no event comes.
    "rates that are in force no longer are told as allocated, once": f"""
        {LOWERED} | forget | left > 40 | told > Allocated | tell p | told | force p 1 | left > 80 | told > InForce""",
    "rates that are in force again before anybody looks are not told": f"{LOWERED} | forget | force p 1 | told",
    # The condition is an earlier leader's, from before the node took it back.
    "a new leader tells that rates are no longer in force": f"{LOWERED} | gone p | forget | back p | told > Allocated",
    # Its node says whatever it likes afterwards.
    "a settled pod leaves nothing": f"{LOWERED} | gone p | forget | told | settled > 0",
    "an inventory without the field of rates gets none until it has it": """
        bind p 20 | older | edit p 30 | told > none | newer | write > p:30""",
    "a node without the annotation gets none until it has it": """
        bind p 20 | silence | edit p 30 | told > none | newer | write > p:30""",
    # It says why, and reserves what the VF may have.
    "what is allocated when an older advertiser comes is allocated again with a newer one": """
        bind p 20 | edit p 60 | write > p:60 | older | told > unknown 1 | left > 30 | tell p | told | newer
        | told > Allocated | force p 1 | told > InForce""",
    # An older mooring-cni sets the assignment's rates where a sandbox is made again: they count, too.
    "what an older advertiser leaves in force is not known any more": f"""
        {LOWERED} | wait 2 | edit p 20 | write > p:20 | force p 2 | left > 70 | told > InForce | older
        | told > unknown 2 | left > 40 | newer | left > 70 | told > InForce""",
    # What a node still says to be in force counts only together with it.
    "no inventory says nothing of rates": f"{LOWERED} | bare | told > unknown 1",
    "a request that is removed after its rates changed is refused too": f"""
        {LOWERED} | remove_request p | told > Refused: annotation {names.REQUEST!r}: the pod has 1 VFs but now requests
        none: {ONLY_RATES} | left > 80""",
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_writes_of_rates(story: str, edited: EditedRates) -> None:
    play(edited, story)


def test_writes_under_way_are_few_whoever_edits(edited: EditedRates) -> None:
    """Twenty pods of one user are edited; eight writes at once, and none of the pods is passed over."""
    edited.show_node(vfs=20)
    play(edited, " | ".join(f"bind p{number} 1 | edit p{number} 2" for number in range(20)))
    seen = set()
    while orders := edited.writes():
        assert len(orders) <= 8
        seen |= {order.pod.metadata.name for order in orders}
        edited.carry_out(*orders)
    assert len(seen) == 20


def test_writes_without_an_answer_hold_up_nobody_else(edited: EditedRates) -> None:
    """As of pods that have grown too large for the API server's storage: what they were to have stays reserved."""
    edited.show_node(vfs=20)
    pods = [f"p{number}" for number in range(9)]
    play(edited, "bind p9 1 | " + " | ".join(f"bind {name} 1" for name in pods))
    play(edited, " | ".join(f"edit {name} 2" for name in pods))
    stuck = edited.writes()
    assert len(stuck) == 8
    play(edited, "due > 1.0 | wait 10 | write > p8:2 | edit p9 2 | write > p9:2 | left > 70")
    edited.carry_out(*stuck)
    play(edited, "left > 70")


def test_rates_are_signed_where_assignments_are(life: Life) -> None:
    edited = EditedRates(life.successor(Machine("mooring", sign_rates=lambda text: f"signed {text}")))
    play(edited, "bind p 20 | edit p 30 | order > p:30")
    (order,) = edited.orders
    assert order.annotations[names.RATES_SIGNATURE] == f"signed {order.annotations[names.RATES]}"


def test_a_pod_that_asks_in_the_other_key_has_not_removed_its_request(edited: EditedRates) -> None:
    """``rdma_interfaces_required`` does not change."""
    edited.life.see(edited.life.make_pod("p", annotations={names.RIT_REQUEST: '[{"min_tx_rate": 20000}]'}))
    (bind,) = edited.binds()
    edited.show(as_bound(bind))
    play(edited, "order | told")


def test_a_pod_without_vfs_cannot_ask_for_some_while_it_runs(edited: EditedRates) -> None:
    """It has units of another kind, and had asked for no interface."""
    pod = edited.new("p", node="n1")
    units = dump_assignment(Assignment(pod.metadata.uid, "n1", (), {"gpu": {"v": 1}}))
    pod.metadata.annotations = {names.REQUEST: "[]", names.ASSIGNMENT: units}
    edited.show(pod)
    told = f"Refused: annotation {names.REQUEST!r}: the pod has 0 VFs but now requests 1: {ONLY_RATES}"
    play(edited, f"told | edit p 20 | told > {told} | tell p | edit p | told > InForce | remove_request p | told")


def _figures(edited: EditedRates) -> tuple[dict[str, float], float]:
    """Return the gauges of edits that are not in force: those that are not 0 by state, and since when one is late."""
    collector = _MachineCollector(edited.machine)
    samples = [sample for metric in collector.collect() for sample in metric.samples]
    states = {one.labels["state"]: one.value for one in samples if one.name == "mooring_edited_rates" and one.value}
    (since,) = (one.value for one in samples if one.name == "mooring_rates_late_since_timestamp_seconds")
    return states, since


def test_how_long_allocated_rates_are_not_in_force_is_seen_from_outside(edited: EditedRates) -> None:
    """Of the oldest; also after a later edit that waits, and for a new leader. A node that changes none is not late."""
    play(edited, "wait 100 | bind p 20")
    assert _figures(edited) == ({}, 0)
    play(edited, "edit p 30 | write > p:30 | wait 100 | bind q 20 | edit q 30 | write > q:30")
    assert _figures(edited) == ({"Allocated": 2}, 100)
    edited.edit("p", "80")
    edited.decide()
    assert _figures(edited) == ({"Allocated": 1, "Deferred": 1}, 100)
    play(edited, "force p 1")
    assert _figures(edited)[1] == 200
    edited.older()
    edited.decide()
    assert _figures(edited) == ({"Infeasible": 2}, 0)
