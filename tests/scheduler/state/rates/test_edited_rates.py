"""Edits of a running pod's rates: what fits is reserved and written at once, what does not waits or is refused.

And what is told of rates that are not in force, or not any more.
"""

from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import Assignment, dump_assignment
from mooring.annotations.rates import LAST_GENERATION, PodRates, VfRates, dump_rates
from scheduler.kube.objects import Condition
from scheduler.server.metrics import _MachineCollector
from scheduler.state.machine import Machine
from scheduler.state.rates.pod_rates import CONDITION
from tests.scheduler.group_life import Life, as_bound
from tests.scheduler.state.rates.edited_rates import ONLY_RATES, EditedRates
from tests.scheduler.story import play, stories

LACK = "Deferred: PF 'pf0': {} more Mb/s are needed, but other pods reserve too much"
LOWER_FIRST = (
    "Deferred: PF 'pf0': the old rates stay reserved until the lower rates are in force: "
    "lower first, then raise in a second edit"
)
# A pod lowers its rate, which comes into force and is told.
LOWERED = "bind p 50 | edit p 10 | write > p:10/50 | force p 1 | told > InForce | tell p | told | left > 80 | later 20"
EDITS = " | ".join(f"edit p {gbps} | order" for gbps in range(22, 30))


def test_a_pod_that_was_not_edited_costs_no_look(edited: EditedRates) -> None:
    edited.bound("p", {"min_tx_rate": 20_000, "name": "rdma0", "network": "rail0"}, {})
    play(edited, "due > never | told")


def test_raised_rates_are_reserved_at_once_and_written(edited: EditedRates) -> None:
    """Uid, version and node are those of the pod; the node puts them in force, and that is told once."""
    play(edited, "bind p 20 0 | edit p 50-60 0")
    uid = edited.pods["p"].metadata.uid
    (order,) = edited.writes()
    assert order.rates == PodRates(uid, "n1", 1, (VfRates(50_000, 60_000), VfRates()), (50_000, 0))
    assert (order.pod.metadata.uid, order.pod.metadata.resource_version) == (uid, "2")
    assert list(order.annotations) == [names.RATES]
    play(edited, "left > 40")
    edited.carry_out(order)
    play(edited, "left > 40 | told | force p 1 | told > InForce | told")


STORIES = {
    "lowered rates are free once in force, also where the PF offers less by now than is reserved": """
        bind p 80 | node offer_mbps=10000 | edit p 5 | write > p:5/80 | node | left > 10 | force p 1 | left > 85""",
    "the last decision wins, and all that the VF may still have stays reserved": """
        bind p 20 | later 2 | edit p 60 | write > p:60 | later 2 | edit p 10 | write > p:10/60 | later 2 | edit p 30
        | write > p:30/60 | force p 2 | left > 30 | force p 3 | left > 60""",
    # Its VF reserves the old rate again, which others have taken since.
    "a lowered rate that is no longer in force may lower, but waits for more": f"""
        bind p 80 | edit p 20 | write > p:20/80 | force p 1 | bind other 70 | told > InForce | forget | later 2
        | edit p 60 | told > {LACK.format(40000)} | edit p 10 | write > p:10/80""",
    # Another leader's write is answered as a conflict here.
    "what a node frees before the write is shown helps who waits": """
        bind p 80 | edit p 20 | order > p:20/80 | place q 50 | later 1 | answer changed | force p 1 | later 30 |
        schedule | watch | later 30 | schedule > q""",
    "what a node frees before the write is answered helps who waits": """
        bind p 80 | edit p 20 | order > p:20/80 | place q 50 | later 1 | watch | force p 1 | later 30 | schedule
        | answer written | later 30 | schedule > q""",
    "rates wait until others leave, are told once, and are tried by priority and age": f"""
        bind big 60 | later 1 | bind old 10 | later 1 | bind young 10 | later 1 | bind high@10 10
        | later 1 | edit old 40 | told > {LACK.format(30000)} | later 1 | edit young 40 | told > {LACK.format(30000)}
        | later 1 | edit high 40 | told > {LACK.format(30000)} | delete big | write > high:40 old:40
        | force high 1 | force old 1 | later 2 | edit old 10 | write > old:10/40 | write | force old 2
        | write > young:40""",
    "a pod that is edited again while it waits comes after those that have waited since": f"""
        bind big 60 | bind one 10 | bind two 10 | edit one 40 | told > {LACK.format(30000)} | later 1 | edit two 40
        | told > {LACK.format(30000)} | later 1 | edit one 45 | told > {LACK.format(35000)} | delete big
        | write > two:40 one:45""",
    "what an edit reserves that is taken back is given to others at once": f"""
        bind p 20 | bind q 10 | edit p 70 | order > p:70 | edit q 30 | told > {LACK.format(20000)} | edit p 20
        | answer changed | write > q:30""",
    # It is in force before the watch shows it, and nothing is left to do for that pod.
    "lower rates that are shown late help others on their node": f"""
        bind p 80 | edit p 20 | order > p:20/80 | bind q 0 | edit q 60 | told > {LACK.format(60000)} | later 1
        | answer changed | force p 1 | told | watch | write > q:60""",
    "what is lowered on one VF is not free for another before it is in force": f"""
        bind p 50 40 | edit p 40 50 | told > {LOWER_FIRST} | edit p 40 40 | write > p:40,40/50,40 | later 2 | force p 1
        | edit p 40 50 | write > p:40,50""",
    "bandwidth that is kept for a pod that preempts is not given to a raised rate": f"""
        bind victim 60 | bind p 20 | place urgent 70 10 | delete victim | edit p 30 | told > {LACK.format(10000)}""",
    "a change of max alone reserves nothing more": "bind p 90 | edit p 90-95 | write > p:90-95",
    "what was lowered is not raised again while its link is down": """
        bind p 20 | edit p 10 | write > p:10/20 | later 2 | node up=false | edit p 15
        | told > Deferred: PF 'pf0' is down""",
    # The node may come back, and if it does not the pod is deleted.
    "a pod on a node that is gone waits for its node without a message": """
        bind p 20 | lose | edit p 30 | told | node | write > p:30""",
    # What a pod has and does not change is not checked again.
    "a pod may lower where its cap is above what the link does now": """
        bind p 20-95 | node mbps=40000 offer_mbps=36000 | edit p 10-95 | write > p:10-95/20""",
    "more than the PF ever offers is infeasible": """
        bind p 0 | edit p 95 | told > Infeasible: PF 'pf0': the pod would reserve 95000 Mb/s; at most 90000 can be
        reserved""",
    # A node says what it likes.
    "no generation is written that no reader would believe": f"""
        bind p 20 | force p {LAST_GENERATION} | edit p 10
        | told > Infeasible: node n1 reports that the last generation is in force""",
    "after a conflict nothing is reserved, a pod that waits gets it, and the edit is decided again": """
        bind p 20 | edit p 90 | order > p:90 | place q 70 | answer changed | left > 70 | later 20 | schedule > q
        | told > Deferred: PF 'pf0': 70000 more Mb/s are needed, but other pods reserve too much""",
    "a pod has one write under way, a second passes between two, and the last edit counts": f"""
        bind p 20 | edit p 21 | order > p:21 | {EDITS} | answer written | watch | order | later 1 | order > p:29
        | generations > 2""",
    "a refusal of the API server is told and tried again after a minute": """
        bind p 20 | edit p 30 | order > p:30 | answer refused no > Deferred: the API server rejected the rates: no
        | left > 70 | later 59 | order | later 2 | order > p:30""",
    "a pod that is deleted meanwhile keeps nothing": """
        bind p 20 | edit p 30 | order > p:30 | delete p | left > 90 | answer written | left > 90 | due > never""",
    "a pod that is deleted before its edit is judged leaves nothing": "bind p 20 | edit p 30 | delete p | due > never",
    "a pod that terminates is told no more": f"{LOWERED} | terminate p | forget | told",
    # Also of a pod about which nothing was left to do, and of which no event comes.
    "rates that are in force no longer are told as allocated, once": f"""
        {LOWERED} | forget | left > 40 | told > Allocated | tell p | told | force p 1 | left > 80 | told > InForce""",
    "rates that are in force again before anybody looks are not told": f"{LOWERED} | forget | force p 1 | told",
    # The condition is an earlier leader's, from before the node took it back.
    "a new leader tells that rates are no longer in force": f"""
        {LOWERED} | delete p | forget | back p | told > Allocated""",
    # Its node says whatever it likes afterwards.
    "a settled pod leaves nothing": f"{LOWERED} | delete p | forget | told | settled > 0",
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
        {LOWERED} | later 2 | edit p 20 | write > p:20 | force p 2 | left > 70 | told > InForce | older
        | told > unknown 2 | left > 40 | newer | left > 70 | told > InForce""",
    # What a node still says to be in force counts only together with it.
    "no inventory says nothing of rates": f"{LOWERED} | bare | told > unknown 1",
    "a request that is removed after its rates changed is refused too": f"""
        {LOWERED} | edit p nothing | told > Refused: annotation {names.REQUEST!r}: the pod has 1 VFs but now requests
        none: {ONLY_RATES} | left > 80""",
}


@stories(STORIES)
def test_edited_rates(story: str, edited: EditedRates) -> None:
    play(edited, story)


def test_a_new_leader_reports_rates_in_force_although_a_standby_saw_earlier_ones_in_force(edited: EditedRates) -> None:
    play(edited, "bind p 10 | edit p 20 | write > p:20 | force p 1 | told > InForce | tell p | edit p 30")
    rates = PodRates(edited.pods["p"].metadata.uid, "n1", 2, (VfRates(30_000),), (30_000,))
    edited.annotate("p", {names.RATES: dump_rates(rates)})
    play(edited, "tell p Allocated | force p 2")
    assert list(edited.machine.repeat_reports()) == []
    play(edited, "told > InForce | told")


def test_a_new_leader_orders_by_since_when_the_condition_says_deferred(edited: EditedRates) -> None:
    """It has no memory but the API: it takes the pod first that waits the longest, and one without a condition last."""
    play(edited, "bind big 60 | bind new 10 | bind first 10 | bind second 10")
    edited.life.now = 2e9
    for name, since in (("new", ""), ("first", "2026-01-01T00:00:09Z"), ("second", "2026-01-01T00:00:01Z")):
        edited.pods[name].status.conditions = [Condition(CONDITION, "False", "Deferred", "", since)] if since else []
        edited.edit(name, "60")
    play(edited, "delete big | write > second:60")


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
    edited.bind("p", "0")
    edited.request("p", request_)
    assert edited.told().startswith(f"Refused: annotation {names.REQUEST!r}{told}")
    play(edited, "tell p | told | edit p 0 | told > InForce")


@pytest.mark.parametrize(
    ("node", "pod", "rate", "told"),
    [
        ({"can": frozenset()}, {}, "20", "PF 'pf0': min_tx_rate cannot be set by the PF's driver"),
        # The containers' limit cannot change, so neither can the sum of what the pod reserves.
        (
            {"allocatable": {"rdma-sriov/mbps": "90000"}},
            {"spec": {"containers": [{"resources": {"limits": {"rdma-sriov/mbps": "20000"}}, "name": "c"}]}},
            "20.001",
            "the containers limit 'rdma-sriov/mbps' to 20000, but the pod would reserve 20001 Mb/s",
        ),
    ],
    ids=["the driver", "a quota"],
)
def test_what_never_fits_is_infeasible(
    node: dict[str, Any], pod: dict[str, Any], rate: str, told: str, edited: EditedRates
) -> None:
    edited.show_node(allocatable=node.get("allocatable"))
    edited.bound("p", {"min_tx_rate": 20_000} if pod else {}, **pod)
    edited.show_node(**node)
    play(edited, f"edit p {rate} | told > Infeasible: {told}")


def test_pods_of_other_schedulers_are_left_alone(edited: EditedRates) -> None:
    edited.bind("p", "20")
    edited.pods["p"].spec.scheduler_name = "other"
    play(edited, "edit p 30 | order | told")


def test_a_pod_that_is_edited_while_others_of_its_node_are_looked_at_is_not_passed_over(edited: EditedRates) -> None:
    """Forty pods wait, more than one step looks at: the first of them is edited again after the first step."""
    edited.show_node(vfs=41)
    play(edited, "bind big 80 | " + " | ".join(f"bind p{number} 0 | edit p{number} 60" for number in range(40)))
    edited.machine.tick(edited.life.now)
    assert edited.machine.rate_changes.next_due() is not None
    play(edited, "edit p0 1 | order > p0:1")


def test_what_waits_on_a_busy_node_takes_no_memory_for_each_look(edited: EditedRates) -> None:
    """Each look says when to look again at the latest; only the next one counts."""
    play(edited, "bind big 80 | bind p 0 | edit p 60")
    for _ in range(1000):
        edited.life.now += 0.01
        edited.machine.rate_changes.touch("n1", edited.life.now)
        edited.machine.tick(edited.life.now)
    assert len(edited.machine.rate_changes._reviews) == 1


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
    play(edited, "due > 1 | later 10 | write > p8:2 | edit p9 2 | write > p9:2 | left > 70")
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
    pod = edited.life.make_pod("p", [], node="n1")
    units = dump_assignment(Assignment(pod.metadata.uid, "n1", (), {"gpu": {"v": 1}}))
    pod.metadata.annotations = {names.REQUEST: "[]", names.ASSIGNMENT: units}
    edited.show(pod)
    told = f"Refused: annotation {names.REQUEST!r}: the pod has 0 VFs but now requests 1: {ONLY_RATES}"
    play(edited, f"told | edit p 20 | told > {told} | tell p | edit p | told > InForce | edit p nothing | told")


def _figures(edited: EditedRates) -> tuple[dict[str, float], float]:
    """Return the gauges of edits that are not in force: those that are not 0 by state, and since when one is late."""
    collector = _MachineCollector(edited.machine)
    samples = [sample for metric in collector.collect() for sample in metric.samples]
    states = {one.labels["state"]: one.value for one in samples if one.name == "mooring_edited_rates" and one.value}
    (since,) = (one.value for one in samples if one.name == "mooring_rates_late_since_timestamp_seconds")
    return states, since


def test_how_long_allocated_rates_are_not_in_force_is_seen_from_outside(edited: EditedRates) -> None:
    """Of the oldest; also after a later edit that waits, and for a new leader. A node that changes none is not late."""
    play(edited, "later 100 | bind p 20")
    assert _figures(edited) == ({}, 0)
    play(edited, "edit p 30 | write > p:30 | later 100 | bind q 20 | edit q 30 | write > q:30")
    assert _figures(edited) == ({"Allocated": 2}, 100)
    edited.edit("p", "80")
    edited.decide()
    assert _figures(edited) == ({"Allocated": 1, "Deferred": 1}, 100)
    play(edited, "force p 1")
    assert _figures(edited)[1] == 200
    edited.older()
    edited.decide()
    assert _figures(edited) == ({"Infeasible": 2}, 0)
