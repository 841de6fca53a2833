"""What is told of allocated rates whose node does not say that they are in force, or not any more."""

from mooring import names
from mooring.annotations.assignment import Assignment, dump_assignment
from scheduler.server.metrics import _MachineCollector
from tests.scheduler.group_life import as_bound
from tests.scheduler.state.rates.edited_rates import IN_FORCE, ONLY_RATES, EditedRates

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
    """Also of a pod about which nothing was left to do, and of which no event comes; once."""
    _lowered(edited)
    edited.forget_in_force()
    assert (edited.left, edited.told()) == (40_000, [ALLOCATED])
    edited.tell("p", *ALLOCATED)
    assert edited.told() == []
    edited.put_in_force("p", 1)
    assert (edited.left, edited.told()) == (80_000, [IN_FORCE])


def test_rates_that_are_in_force_again_before_anybody_looks_are_not_told_again(edited: EditedRates) -> None:
    _lowered(edited)
    edited.forget_in_force()
    edited.put_in_force("p", 1)
    assert edited.told() == []


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


def test_an_advertiser_of_an_older_version_changes_no_rates(edited: EditedRates) -> None:
    """It writes an inventory without the field, and leaves what is in force as it is; a later one is believed again."""
    edited.bound("p", {"min_tx_rate": 20_000})
    edited.support(says_rates=False)
    edited.edit("p", {"min_tx_rate": 30_000})
    assert edited.told() == [("Infeasible", CHANGES_NONE)]
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
