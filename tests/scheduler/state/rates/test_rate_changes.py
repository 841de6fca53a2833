"""Edits of a running pod's rates: what fits is written and reserved at once, what does not waits or is refused."""

from typing import Any

import pytest

from mooring import names
from mooring.annotations.rates import PodRates, VfRates
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import WriteRatesResult
from scheduler.kube.objects import Condition
from scheduler.state.rates.pod_rates import CONDITION
from tests.scheduler.state.rates.edited_rates import IN_FORCE, ONLY_RATES, WRITTEN, EditedRates


def test_a_pod_that_was_not_edited_costs_no_look(edited: EditedRates) -> None:
    edited.bound("p", {"min_tx_rate": 20_000, "name": "rdma0", "network": "rail0"}, {})
    assert edited.machine.rate_changes.next_due() is None
    assert edited.decide() == []


def test_raised_rates_are_reserved_at_once_and_written(edited: EditedRates) -> None:
    """Uid, version and node are those of the pod; the node puts them in force, and that is told."""
    pod = edited.bound("p", {"min_tx_rate": 20_000}, {})
    edited.edit("p", {"min_tx_rate": 50_000, "max_tx_rate": 60_000}, {})
    (order,) = edited.writes()
    assert edited.left == 40_000
    assert order.rates == PodRates(pod.metadata.uid, "n1", 1, (VfRates(50_000, 60_000), VfRates()), (50_000, 0))
    assert (order.pod.metadata.uid, order.pod.metadata.resource_version) == (pod.metadata.uid, "2")
    assert list(order.annotations) == [names.RATES]
    edited.carry_out(order)
    assert (edited.left, edited.told()) == (40_000, [])
    edited.put_in_force("p", 1)
    assert edited.told() == [IN_FORCE]
    assert edited.told() == []


def test_lowered_rates_are_free_once_their_node_has_put_them_in_force(edited: EditedRates) -> None:
    """Also where the PF offers less by now than is reserved: a pod may always lower."""
    edited.bound("p", {"min_tx_rate": 80_000})
    edited.show_node(offer_mbps=10_000)
    edited.edit("p", {"min_tx_rate": 5_000})
    rates = edited.write()
    assert (rates.rates, rates.reserved) == ((VfRates(5_000),), (80_000,))
    edited.show_node()
    assert edited.left == 10_000
    edited.put_in_force("p", 1)
    assert edited.left == 85_000


def test_the_last_decision_wins_and_reserves_all_that_its_vf_may_still_have(edited: EditedRates) -> None:
    """Three edits, of which the node has put none in force: the largest of them stays reserved."""
    edited.bound("p", {"min_tx_rate": 20_000})
    for rate, reserved in ((60_000, 60_000), (10_000, 60_000), (30_000, 60_000)):
        edited.now += 2.0
        edited.edit("p", {"min_tx_rate": rate})
        assert edited.write().reserved == (reserved,)
    edited.put_in_force("p", 2)
    assert edited.left == 30_000
    edited.put_in_force("p", 3)
    assert edited.left == 60_000


def test_a_lowered_rate_that_is_no_longer_in_force_is_not_raised_into_what_others_have(edited: EditedRates) -> None:
    """Its VF reserves the old rate again, which others have taken since; it may lower, and waits for more."""
    edited.change(80_000, 20_000)
    edited.write()
    edited.put_in_force("p", 1)
    edited.bound("other", {"min_tx_rate": 70_000})
    edited.decide()
    edited.forget_in_force()
    edited.now += 2.0
    edited.edit("p", {"min_tx_rate": 60_000})
    told = ("Deferred", "PF 'pf0': 40000 more Mb/s are needed, but other pods reserve too much")
    assert told in edited.told()
    edited.edit("p", {"min_tx_rate": 10_000})
    assert edited.write().reserved == (80_000,)


@pytest.mark.parametrize("first", ["node", "pod"])
def test_what_a_node_frees_before_the_write_is_known_helps_who_waits(first: str, edited: EditedRates) -> None:
    """Also where that is another leader's write: a pod that waits for the bandwidth gets it."""
    edited.change(80_000, 20_000)
    (order,) = edited.writes()
    assert not edited.see(edited.new("waits", {"min_tx_rate": 50_000}))

    def see_write() -> None:
        edited.annotate("p", dict(order.annotations))

    edited.now += 1.0
    if first == "node":
        edited.finish(order, WriteRatesResult("changed"))
    else:
        see_write()
    edited.put_in_force("p", 1)
    edited.now += 30.0
    assert not edited.binds()
    if first == "node":
        see_write()
    else:
        edited.finish(order, WRITTEN)
    edited.now += 30.0
    assert len(edited.binds()) == 1


def test_rates_wait_until_others_leave_and_are_tried_by_priority_and_age(edited: EditedRates) -> None:
    """Each is told once; what leaves makes room for the more important one, then for the older one."""
    edited.bound("big", {"min_tx_rate": 60_000})
    for name, priority in (("old", 0), ("young", 0), ("high", 10)):
        edited.now += 1.0
        edited.bound(name, {"min_tx_rate": 10_000}, spec={"priority": priority})
    for name in ("old", "young", "high"):
        edited.now += 1.0
        edited.edit(name, {"min_tx_rate": 40_000})
        rule = "30000 more Mb/s are needed, but other pods reserve too much"
        assert edited.told() == [("Deferred", f"PF 'pf0': {rule}")]
    edited.remove("big")
    orders = edited.writes()
    assert [one.pod.metadata.name for one in orders] == ["high", "old"]
    for order in orders:
        edited.carry_out(order)
    edited.put_in_force("high", 1)
    edited.put_in_force("old", 1)
    edited.now += 2.0
    edited.edit("old", {"min_tx_rate": 10_000})
    edited.write()
    assert edited.writes() == []
    edited.put_in_force("old", 2)
    assert [one.pod.metadata.name for one in edited.writes()] == ["young"]


def test_a_new_leader_orders_by_since_when_the_condition_says_deferred(edited: EditedRates) -> None:
    """It has no memory but the API: it takes the pod first that waits the longest, and one without a condition last."""
    edited.bound("big", {"min_tx_rate": 60_000})
    for name in ("new", "first", "second"):
        edited.bound(name, {"min_tx_rate": 10_000})
    edited.now = 2e9
    for name, since in (("new", ""), ("first", "2026-01-01T00:00:09Z"), ("second", "2026-01-01T00:00:01Z")):
        edited.pods[name].status.conditions = [Condition(CONDITION, "False", "Deferred", "", since)] if since else []
        edited.edit(name, {"min_tx_rate": 60_000})
    edited.remove("big")
    assert [one.pod.metadata.name for one in edited.writes()] == ["second"]


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ("[{},{}]", ": the pod has 1 VFs but now requests 2: "),
        (None, f": the pod has 1 VFs but now requests none: {ONLY_RATES}"),
        ('[{"vlan":5}]', "[0].vlan: differs from the assigned VF: "),
        ('[{"name":"x"}]', "[0].name: differs from the assigned VF: "),
        ('[{"network":"rail9"}]', "[0].network: "),
        ('[{"pf":"pf9*"}]', "[0].pf: "),
        ('[{"netdev":true}]', "[0].netdev: "),
        ('[{"containers":["other"]}]', "[0].containers: "),
        ('[{"min_tx_rate":2,"max_tx_rate":1}]', "[0].min_tx_rate: 2 exceeds"),
        ("[", ": "),
    ],
)
def test_any_other_change_is_refused_in_words_and_nothing_happens(
    request_: str | None, told: str, edited: EditedRates
) -> None:
    """Told once; when the request is as it was, that is told too."""
    edited.bound("p", {})
    edited.annotate("p", {names.REQUEST: request_})
    ((reason, message),) = edited.told()
    assert reason == "Refused"
    assert message.startswith(f"annotation {names.REQUEST!r}{told}")
    edited.tell("p", reason, message)
    assert edited.told() == []
    edited.edit("p", {})
    assert edited.told() == [IN_FORCE]


@pytest.mark.parametrize(
    ("pf", "rate", "told"),
    [
        ({}, 95_000, "PF 'pf0': the pod would reserve 95000 Mb/s; at most 90000 can be reserved"),
        ({"can": frozenset()}, 20_000, "PF 'pf0': min_tx_rate cannot be set by the PF's driver"),
    ],
)
def test_what_never_fits_is_infeasible(pf: dict[str, Any], rate: int, told: str, edited: EditedRates) -> None:
    edited.bound("p", {})
    edited.show_node(**pf)
    edited.edit("p", {"min_tx_rate": rate})
    assert edited.told() == [("Infeasible", told)]


def test_what_is_lowered_on_one_vf_is_not_free_for_another_one_before_it_is_in_force(edited: EditedRates) -> None:
    """Both at once would reserve more than the PF offers: the pod lowers first."""
    edited.bound("p", {"min_tx_rate": 50_000}, {"min_tx_rate": 40_000})
    edited.edit("p", {"min_tx_rate": 40_000}, {"min_tx_rate": 50_000})
    rule = "the old rates stay reserved until the lower rates are in force: lower first, then raise in a second edit"
    assert edited.told() == [("Deferred", f"PF 'pf0': {rule}")]
    edited.edit("p", {"min_tx_rate": 40_000}, {"min_tx_rate": 40_000})
    edited.write()
    edited.now += 2.0
    edited.put_in_force("p", 1)
    edited.edit("p", {"min_tx_rate": 40_000}, {"min_tx_rate": 50_000})
    assert edited.write().reserved == (40_000, 50_000)


def test_a_quota_is_not_passed_by_an_edit(edited: EditedRates) -> None:
    """The containers' limit of Mb/s cannot change, so neither can the sum of what the pod reserves."""
    edited.show_node(allocatable={"rdma-sriov/mbps": "90000"})
    limits = {"resources": {"limits": {"rdma-sriov/mbps": "20000"}}, "name": "c"}
    edited.bound("q", {"min_tx_rate": 20_000}, spec={"containers": [limits]})
    edited.edit("q", {"min_tx_rate": 20_001})
    rule = "the containers limit 'rdma-sriov/mbps' to 20000, but the pod would reserve 20001 Mb/s"
    assert edited.told() == [("Infeasible", rule)]


def test_bandwidth_that_is_kept_for_a_pod_that_preempts_is_not_given_to_a_raised_rate(edited: EditedRates) -> None:
    """Unless the running pod is more important."""
    edited.bound("victim", {"min_tx_rate": 60_000})
    edited.bound("p", {"min_tx_rate": 20_000})
    edited.see(edited.new("urgent", {"min_tx_rate": 70_000}, spec={"priority": 10}))
    assert edited.machine.reservations.node_of("uid-2") == "n1"
    edited.remove("victim")
    edited.edit("p", {"min_tx_rate": 30_000})
    assert [reason for reason, _ in edited.told()] == ["Deferred"]


def test_members_of_a_group_that_are_only_tried_keep_nothing_from_a_raised_rate(edited: EditedRates) -> None:
    """What is edited between two portions of the decision is written at once; the group does not fit beside it."""
    edited.show_node(vfs=40)
    edited.bound("p", {"min_tx_rate": 20_000})
    group = {names.GROUP: '{"name":"train","min":20}'}
    members = [edited.new(f"m{number}", {"min_tx_rate": 4_000}, annotations=group) for number in range(20)]
    edited.life.see(*members)
    assert edited.machine.step(edited.now) == []
    assert edited.left == 70_000
    edited.edit("p", {"min_tx_rate": 80_000})
    (order,) = edited.writes()
    assert order.rates.rates == (VfRates(80_000),)
    assert edited.binds() == []


def test_pods_of_other_schedulers_are_left_alone(edited: EditedRates) -> None:
    edited.bound("p", {"min_tx_rate": 20_000})
    edited.pods["p"].spec.scheduler_name = "other"
    edited.edit("p", {"min_tx_rate": 30_000})
    assert edited.decide() == []


def test_a_change_of_max_alone_reserves_nothing_more(edited: EditedRates) -> None:
    edited.bound("p", {"min_tx_rate": 90_000})
    edited.edit("p", {"min_tx_rate": 90_000, "max_tx_rate": 95_000})
    rates = PodRates(edited.pods["p"].metadata.uid, "n1", 1, (VfRates(90_000, 95_000),), (90_000,))
    assert edited.write() == rates


def test_what_was_lowered_is_not_raised_again_while_its_link_is_down(edited: EditedRates) -> None:
    edited.change(20_000, 10_000)
    edited.write()
    edited.now += 2.0
    edited.show_node(up=False)
    edited.edit("p", {"min_tx_rate": 15_000})
    assert ("Deferred", "PF 'pf0' is down") in edited.told()


def test_a_pod_on_a_node_that_is_gone_waits_for_its_node(edited: EditedRates) -> None:
    """Nothing is told: the node may come back, and if it does not the pod is deleted."""
    edited.bound("p", {"min_tx_rate": 20_000})
    edited.machine.nodes(Removed(Identity("n1")), edited.now)
    edited.edit("p", {"min_tx_rate": 30_000})
    assert edited.decide() == []
    edited.show_node()
    assert len(edited.writes()) == 1


def test_a_pod_that_is_edited_while_others_of_its_node_are_looked_at_is_not_passed_over(
    edited: EditedRates,
) -> None:
    """Forty pods wait, more than one step looks at: the first of them is edited again after the first step."""
    edited.show_node(vfs=41)
    edited.bound("big", {"min_tx_rate": 80_000})
    for number in range(40):
        edited.bound(f"p{number}", {})
        edited.edit(f"p{number}", {"min_tx_rate": 60_000})
    edited.machine.tick(edited.now)
    assert edited.machine.rate_changes.next_due() is not None
    edited.edit("p0", {"min_tx_rate": 1_000})
    assert [order.pod.metadata.name for order in edited.writes()] == ["p0"]


def test_what_waits_on_a_busy_node_takes_no_memory_for_each_look(edited: EditedRates) -> None:
    """Each look says when to look again at the latest; only the next one counts."""
    edited.bound("big", {"min_tx_rate": 80_000})
    edited.bound("p", {})
    edited.edit("p", {"min_tx_rate": 60_000})
    for _ in range(1000):
        edited.now += 0.01
        edited.machine.rate_changes.touch("n1", edited.now)
        edited.machine.tick(edited.now)
    assert len(edited.machine.rate_changes._reviews) == 1


def test_a_pod_may_lower_where_its_cap_is_above_what_the_link_does_now(edited: EditedRates) -> None:
    """What it has and does not change is not asked for again."""
    edited.bound("p", {"min_tx_rate": 20_000, "max_tx_rate": 95_000})
    edited.show_node(mbps=40_000, offer_mbps=36_000)
    edited.edit("p", {"min_tx_rate": 10_000, "max_tx_rate": 95_000})
    assert edited.write().rates == (VfRates(10_000, 95_000),)
