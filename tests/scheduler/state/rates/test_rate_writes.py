"""Writes of changed rates, and what is told of those that are not in force, or not any more."""

import pytest

from mooring import names
from mooring.annotations.assignment import Assignment, dump_assignment
from mooring.annotations.rates import LAST_GENERATION, VfRates
from scheduler.cycle.instructions import ReportRates, WriteRatesResult
from scheduler.server.metrics import _MachineCollector
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, as_bound
from tests.scheduler.state.rates.edited_rates import IN_FORCE, ONLY_RATES, WRITTEN, EditedRates


def test_no_generation_is_written_that_no_reader_would_believe(edited: EditedRates) -> None:
    """A node says what it likes: that no generation comes after the one it has in force."""
    edited.bound("p", {"min_tx_rate": 20_000})
    edited.put_in_force("p", LAST_GENERATION)
    edited.edit("p", {"min_tx_rate": 10_000})
    assert edited.told() == [("Infeasible", "node n1 reports that the last generation is in force")]


def test_a_write_that_was_not_carried_out_reserves_nothing(edited: EditedRates) -> None:
    """After a conflict it is decided again by what the watch shows; a pod that waits for the bandwidth gets it."""
    edited.change(20_000, 90_000)
    (order,) = edited.writes()
    assert edited.see(edited.new("", {"min_tx_rate": 70_000})) == []
    edited.finish(order, WriteRatesResult("changed"))
    assert edited.left == 70_000
    edited.now += 20.0
    assert len(edited.binds()) == 1
    assert [reason for reason, _ in edited.told()] == ["Deferred"]


def test_one_write_is_under_way_for_a_pod_and_a_second_passes_between_two(edited: EditedRates) -> None:
    """However often it is edited meanwhile: the last edit counts."""
    edited.change(20_000, 21_000)
    (order,) = edited.writes()
    for rate in range(22_000, 30_000, 1_000):
        edited.edit("p", {"min_tx_rate": rate})
        assert edited.writes() == []
    edited.finish(order, WRITTEN)
    edited.annotate("p", dict(order.annotations))
    assert edited.writes() == []
    edited.now += 1.0
    (order,) = edited.writes()
    assert (order.rates.rates, order.rates.generation) == ((VfRates(29_000),), 2)


def test_writes_under_way_are_few_whoever_edits(edited: EditedRates) -> None:
    """Twenty pods of one user are edited; eight writes at once, and none of the pods is passed over."""
    edited.show_node(vfs=20)
    for number in range(20):
        edited.bound(f"p{number}", {"min_tx_rate": 1_000})
        edited.edit(f"p{number}", {"min_tx_rate": 2_000})
    seen = set()
    orders = edited.writes()
    while orders:
        assert len(orders) <= 8
        seen |= {order.pod.metadata.name for order in orders}
        for order in orders:
            edited.carry_out(order)
        orders = edited.writes()
    assert len(seen) == 20


def test_writes_without_an_answer_hold_up_nobody_else(edited: EditedRates) -> None:
    """As of pods that have grown too large for the API server's storage: what they were to have stays reserved."""
    edited.show_node(vfs=20)
    for number in range(10):
        edited.bound(f"p{number}", {"min_tx_rate": 1_000})
    for number in range(9):
        edited.edit(f"p{number}", {"min_tx_rate": 2_000})
    stuck = edited.writes()
    assert len(stuck) == 8
    assert edited.machine.rate_changes.next_due() == 1.0
    edited.now += 10.0
    (order,) = edited.writes()
    edited.carry_out(order)
    edited.edit("p9", {"min_tx_rate": 2_000})
    edited.write()
    assert edited.left == 90_000 - 10 * 2_000
    for order in stuck:
        edited.carry_out(order)
    assert edited.left == 90_000 - 10 * 2_000


def test_a_refusal_of_the_api_server_is_told_and_tried_again_after_a_minute(edited: EditedRates) -> None:
    edited.change(20_000, 30_000)
    (order,) = edited.writes()
    told = [one for one in edited.finish(order, WriteRatesResult("refused", "no")) if isinstance(one, ReportRates)]
    assert [(one.reason, one.message) for one in told] == [("Deferred", "the API server rejected the rates: no")]
    assert edited.left == 70_000
    edited.now += 59.0
    assert edited.writes() == []
    edited.now += 2.0
    assert len(edited.writes()) == 1


def test_a_pod_that_is_deleted_meanwhile_keeps_nothing(edited: EditedRates) -> None:
    edited.change(20_000, 30_000)
    (order,) = edited.writes()
    edited.remove("p")
    assert edited.left == 90_000
    edited.finish(order, WRITTEN)
    assert (edited.left, edited.machine.rate_changes.next_due()) == (90_000, None)


def test_rates_are_signed_where_assignments_are(life: Life) -> None:
    edited = EditedRates(life.successor(Machine("mooring", sign_rates=lambda text: f"signed {text}")))
    edited.change(20_000, 30_000)
    (order,) = edited.writes()
    assert order.annotations[names.RATES_SIGNATURE] == f"signed {order.annotations[names.RATES]}"


ALLOCATED = ("Allocated", "allocated as generation 1: not yet in force on node n1")
CHANGES_NONE = "node n1 does not support rate changes of running pods"
NOT_KNOWN = (
    "Infeasible",
    f"{CHANGES_NONE}: the largest of generation 1, the previous rates and the assigned rates stays reserved",
)


def _lowered(edited: EditedRates) -> None:
    """Let a pod lower its rate from 50,000 to 10,000, which comes into force and is told."""
    edited.change(50_000, 10_000)
    edited.write()
    edited.put_in_force("p", 1)
    assert edited.told() == [IN_FORCE]
    edited.tell("p", *IN_FORCE)
    assert (edited.decide(), edited.left) == ([], 80_000)
    edited.now += 20.0


def test_rates_that_are_in_force_no_longer_are_told_as_allocated(edited: EditedRates) -> None:
    """Also of a pod about which nothing was left to do, and of which no event comes; once.

    If they are in force again before anybody looks, nothing is told.
    """
    _lowered(edited)
    edited.forget_in_force()
    edited.put_in_force("p", 1)
    assert edited.told() == []
    edited.forget_in_force()
    assert (edited.left, edited.told()) == (40_000, [ALLOCATED])
    edited.tell("p", *ALLOCATED)
    assert edited.told() == []
    edited.put_in_force("p", 1)
    assert (edited.left, edited.told()) == (80_000, [IN_FORCE])


def test_a_new_leader_tells_that_rates_are_not_in_force_any_more(edited: EditedRates) -> None:
    """The condition is an earlier leader's, from before the node took it back."""
    _lowered(edited)
    shown = edited.pods["p"]
    edited.remove("p")
    edited.forget_in_force()
    edited.show(shown)
    assert edited.told() == [ALLOCATED]


def test_what_a_settled_pod_leaves_is_nothing(edited: EditedRates) -> None:
    """Its node says whatever it likes afterwards."""
    _lowered(edited)
    edited.remove("p")
    edited.forget_in_force()
    assert edited.decide() == []
    assert edited.machine.rate_changes._uids_in_force == set()


@pytest.mark.parametrize("lacks", ["the field of the inventory", "the node's annotation"])
def test_a_node_that_changes_no_rates_gets_none(edited: EditedRates, lacks: str) -> None:
    """Its advertiser is older, or does not do it, and leaves what is in force as it is; a later one is believed."""
    edited.bound("p", {"min_tx_rate": 20_000})
    edited.in_force = {} if lacks == "the field of the inventory" else None
    edited.support(says_rates=edited.in_force is None)
    edited.edit("p", {"min_tx_rate": 30_000})
    assert edited.told() == [("Infeasible", CHANGES_NONE)]
    edited.in_force = {}
    edited.support(says_rates=True)
    assert len(edited.writes()) == 1


def test_what_is_allocated_when_an_older_advertiser_comes_is_not_allocated_for_ever(edited: EditedRates) -> None:
    """It says why, and reserves what the VF may have; once a newer advertiser is back, it goes on."""
    edited.change(20_000, 60_000)
    edited.write()
    edited.support(says_rates=False)
    assert (edited.told(), edited.left) == ([NOT_KNOWN], 30_000)
    edited.tell("p", *NOT_KNOWN)
    assert edited.told() == []
    edited.support(says_rates=True)
    assert edited.told() == [ALLOCATED]
    edited.put_in_force("p", 1)
    assert edited.told() == [IN_FORCE]


def test_what_an_older_advertiser_leaves_in_force_is_not_known_any_more(edited: EditedRates) -> None:
    """An older mooring-cni sets the assignment's rates where a sandbox is made again: they count, too."""
    _lowered(edited)
    edited.now += 2.0
    edited.edit("p", {"min_tx_rate": 20_000})
    assert edited.write().reserved == (20_000,)
    edited.put_in_force("p", 2)
    assert edited.left == 70_000
    edited.decide()
    edited.support(says_rates=False)
    ((reason, message),) = edited.told()
    assert (reason, message.partition(":")[0]) == ("Infeasible", CHANGES_NONE)
    assert edited.left == 40_000
    edited.support(says_rates=True)
    assert (edited.left, edited.told()) == (70_000, [IN_FORCE])


def test_no_inventory_says_nothing_of_rates(edited: EditedRates) -> None:
    """What a node still says to be in force counts only together with it."""
    _lowered(edited)
    text = '{"pods":{"uid-0":1},"v":1}'
    edited.life.show_node("n1", annotations={names.RATES_IN_FORCE: text})
    assert [reason for reason, _ in edited.told()] == ["Infeasible"]


def test_a_request_that_is_removed_after_its_rates_changed_is_refused_too(edited: EditedRates) -> None:
    _lowered(edited)
    edited.annotate("p", {names.REQUEST: None})
    assert ([reason for reason, _ in edited.told()], edited.left) == (["Refused"], 80_000)


def test_a_pod_that_asks_in_the_other_key_has_not_removed_its_request(edited: EditedRates) -> None:
    """``rdma_interfaces_required`` does not change."""
    pod = edited.new("p")
    pod.metadata.annotations = {names.RIT_REQUEST: '[{"min_tx_rate": 20000}]'}
    (bind,) = edited.see(pod)
    edited.show(as_bound(bind))
    assert edited.decide() == []


def test_a_pod_without_vfs_cannot_ask_for_some_while_it_runs(edited: EditedRates) -> None:
    """It has units of another kind, and had asked for no interface."""
    pod = edited.new("p", node="n1")
    units = dump_assignment(Assignment(pod.metadata.uid, "n1", (), {"gpu": {"v": 1}}))
    pod.metadata.annotations = {names.REQUEST: "[]", names.ASSIGNMENT: units}
    edited.show(pod)
    assert edited.decide() == []
    edited.edit("p", {"min_tx_rate": 20_000})
    told = f"annotation {names.REQUEST!r}: the pod has 0 VFs but now requests 1: {ONLY_RATES}"
    assert edited.told() == [("Refused", told)]
    edited.tell("p", "Refused", told)
    edited.edit("p")
    assert edited.told() == [IN_FORCE]
    edited.annotate("p", {names.REQUEST: None})
    assert edited.decide() == []


def _figures(edited: EditedRates) -> tuple[dict[str, float], float]:
    """Return the gauges of edits that are not in force: those that are not 0 by state, and since when one is late."""
    collector = _MachineCollector(edited.machine)
    samples = [sample for metric in collector.collect() for sample in metric.samples]
    states = {one.labels["state"]: one.value for one in samples if one.name == "mooring_edited_rates" and one.value}
    (since,) = (one.value for one in samples if one.name == "mooring_rates_late_since_timestamp_seconds")
    return states, since


def test_how_long_allocated_rates_are_not_in_force_is_seen_from_outside(edited: EditedRates) -> None:
    """Of the oldest; also after a later edit that waits, and for a new leader. A node that changes none is not late."""
    edited.now = 100.0
    edited.bound("p", {"min_tx_rate": 20_000})
    assert _figures(edited) == ({}, 0)
    edited.edit("p", {"min_tx_rate": 30_000})
    edited.write()
    edited.now = 200.0
    edited.bound("q", {"min_tx_rate": 20_000})
    edited.edit("q", {"min_tx_rate": 30_000})
    edited.write()
    assert _figures(edited) == ({"Allocated": 2}, 100)
    edited.edit("p", {"min_tx_rate": 80_000})
    edited.decide()
    assert _figures(edited) == ({"Allocated": 1, "Deferred": 1}, 100)
    edited.put_in_force("p", 1)
    assert _figures(edited)[1] == 200
    edited.support(says_rates=False)
    edited.decide()
    assert _figures(edited) == ({"Infeasible": 2}, 0)
