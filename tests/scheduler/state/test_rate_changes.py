"""Edits of a running pod's rates: what fits is written and reserved at once, what does not waits or is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.inventory import Pf
from mooring.kube.events import Identity, Removed
from mooring.rates import LAST_GENERATION, PodRates, RatesInForce, VfRates, dump_rates_in_force
from scheduler.cycle.instructions import Instruction, Report, ReportRates, WriteRates, WriteRatesResult
from scheduler.kube.objects import Condition, Node, Pod
from scheduler.state.machine import Machine
from scheduler.state.rate_changes import CONDITION
from tests.scheduler.state.steps import as_bound, binds, remove, steps, take_in

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
WRITTEN = WriteRatesResult("written")


class Life:
    """A node n1 with one PF of 90,000 Mb/s, and pods there; time goes on by itself."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine = machine
        self._make_node, self._make_pf, self._make_pod = make_node, make_pf, make_pod
        self.now = 0.0
        self._version = 0
        self.pods: dict[str, Pod] = {}
        self.in_force: dict[str, int] | None = {}
        self.show_node()

    def show_node(self, **pf: Any) -> None:
        text = None if self.in_force is None else dump_rates_in_force(RatesInForce(self.in_force))
        annotations = {} if text is None else {names.RATES_IN_FORCE: text}
        take_in(self.machine, self._make_node("n1", (self._make_pf(**pf),), annotations=annotations), now=self.now)

    def put_in_force(self, name: str, generation: int) -> None:
        assert self.in_force is not None
        self.in_force[self.pods[name].metadata.uid] = generation
        self.show_node()

    def new(self, name: str, *interfaces: dict[str, Any], **fields: Any) -> Pod:
        return self._make_pod(name, list(interfaces), **fields)

    def bound(self, name: str, *interfaces: dict[str, Any], **fields: Any) -> Pod:
        """Let a pod be bound with these interfaces."""
        take_in(self.machine, self.new(name, *interfaces, **fields), now=self.now)
        (bind,) = binds(steps(self.machine, self.now))
        return self.show(as_bound(bind))

    def show(self, pod: Pod) -> Pod:
        """Let the watch show a pod in a new version."""
        self._version += 1
        pod.metadata.resource_version = str(self._version)
        self.pods[pod.metadata.name] = pod
        take_in(self.machine, pod, now=self.now)
        return pod

    def edit(self, name: str, *interfaces: dict[str, Any]) -> None:
        self.annotate(name, {names.REQUEST: json.dumps(interfaces)})

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        pod = msgspec.convert(msgspec.to_builtins(self.pods[name]), Pod)
        pod.metadata.annotations = {**pod.annotations, **annotations}
        self.show(pod)

    def decide(self) -> list[Instruction]:
        """Let a leader do all that is due now."""
        found: list[Instruction] = []
        for _ in range(20):
            found += self.machine.tick(self.now)
        self.machine.check()
        return found

    def writes(self) -> list[WriteRates]:
        return [one for one in self.decide() if isinstance(one, WriteRates)]

    def write(self) -> PodRates:
        """Let one write be decided and carried out; return it."""
        (order,) = self.writes()
        self.carry_out(order)
        return order.rates

    def carry_out(self, order: WriteRates) -> None:
        assert order.pod.metadata.resource_version == self.pods[order.pod.metadata.name].metadata.resource_version
        self.finish(order, WRITTEN)
        self.annotate(order.pod.metadata.name, dict(order.annotations))

    def finish(self, order: WriteRates, result: WriteRatesResult) -> list[Instruction]:
        return self.machine.finished(order, result, self.now)

    def told(self) -> list[tuple[str, str]]:
        found = self.decide()
        conditions: list[tuple[str, str]] = [(one.reason, one.message) for one in found if isinstance(one, ReportRates)]
        events = [(one.reason.removeprefix("Rates"), one.message) for one in found if isinstance(one, Report)]
        assert conditions == events
        return conditions

    @property
    def left(self) -> int:
        self.machine.check()
        return self.machine.cache.vf_accounting("n1").free_vfs.free_mbps


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


def test_a_pod_that_was_not_edited_costs_no_look(life: Life) -> None:
    """Nothing is kept of it, and nothing is due."""
    life.bound("p", {"min_tx_rate": 20_000, "name": "rdma0", "network": "rail0"}, {})
    assert life.machine.rate_changes.next_due() is None
    assert life.decide() == []


def test_raised_rates_are_reserved_at_once_and_written(life: Life) -> None:
    """Uid, version and node are those of the pod; the node puts them in force, and that is told."""
    pod = life.bound("p", {"min_tx_rate": 20_000}, {})
    life.edit("p", {"min_tx_rate": 50_000, "max_tx_rate": 60_000}, {})
    (order,) = life.writes()
    assert life.left == 40_000
    assert order.rates == PodRates(pod.metadata.uid, "n1", 1, (VfRates(50_000, 60_000), VfRates()), (50_000, 0))
    assert (order.pod.metadata.uid, order.pod.metadata.resource_version) == (pod.metadata.uid, "2")
    assert list(order.annotations) == [names.RATES]
    life.carry_out(order)
    assert (life.left, life.told()) == (40_000, [])
    life.put_in_force("p", 1)
    assert life.told() == [("InForce", "in force on node n1")]
    assert life.told() == []


def test_lowered_rates_are_free_once_their_node_has_put_them_in_force(life: Life) -> None:
    """Also where the PF offers less by now than is reserved: a pod may always lower."""
    life.bound("p", {"min_tx_rate": 80_000})
    life.show_node(offer_mbps=10_000)
    life.edit("p", {"min_tx_rate": 5_000})
    rates = life.write()
    assert (rates.rates, rates.reserved) == ((VfRates(5_000),), (80_000,))
    life.show_node()
    assert life.left == 10_000
    life.put_in_force("p", 1)
    assert life.left == 85_000


def test_the_last_decision_wins_and_reserves_all_that_its_vf_may_still_have(life: Life) -> None:
    """Three edits, of which the node has put none in force: the largest of them stays reserved."""
    life.bound("p", {"min_tx_rate": 20_000})
    for rate, reserved in ((60_000, 60_000), (10_000, 60_000), (30_000, 60_000)):
        life.now += 2.0
        life.edit("p", {"min_tx_rate": rate})
        assert life.write().reserved == (reserved,)
    life.put_in_force("p", 2)
    assert life.left == 30_000
    life.put_in_force("p", 3)
    assert life.left == 60_000


def test_a_lowered_rate_that_is_no_longer_in_force_is_not_raised_into_what_others_have(life: Life) -> None:
    """Its VF reserves the old rate again, which others have taken since; it may lower, and waits for more."""
    life.bound("p", {"min_tx_rate": 80_000})
    life.edit("p", {"min_tx_rate": 20_000})
    life.write()
    life.put_in_force("p", 1)
    life.bound("other", {"min_tx_rate": 70_000})
    life.decide()
    assert life.in_force is not None
    life.in_force.clear()
    life.show_node()
    life.now += 2.0
    life.edit("p", {"min_tx_rate": 60_000})
    told = ("Deferred", "PF 'pf0': 40000 Mb/s more are needed, and others reserve too much")
    assert told in life.told()
    life.edit("p", {"min_tx_rate": 10_000})
    assert life.write().reserved == (80_000,)


@pytest.mark.parametrize("first", ["node", "pod"])
def test_what_a_node_frees_before_the_write_is_known_helps_who_waits(first: str, life: Life) -> None:
    """Also where that is another leader's write: a pod that waits for the bandwidth gets it."""
    life.bound("p", {"min_tx_rate": 80_000})
    life.edit("p", {"min_tx_rate": 20_000})
    (order,) = life.writes()
    take_in(life.machine, life.new("waits", {"min_tx_rate": 50_000}), now=life.now)
    assert not binds(steps(life.machine, life.now))
    life.now += 1.0
    if first == "node":
        life.finish(order, WriteRatesResult("changed"))
        life.put_in_force("p", 1)
    else:
        life.annotate("p", dict(order.annotations))
        life.put_in_force("p", 1)
    life.now += 30.0
    assert not binds(steps(life.machine, life.now))
    if first == "node":
        life.annotate("p", dict(order.annotations))
    else:
        life.finish(order, WRITTEN)
    life.now += 30.0
    assert len(binds(steps(life.machine, life.now))) == 1


def test_rates_wait_until_others_leave_and_are_tried_by_priority_and_age(life: Life) -> None:
    """Each is told once; what leaves makes room for the more important one, then for the older one."""
    life.bound("big", {"min_tx_rate": 60_000})
    for name, priority in (("old", 0), ("young", 0), ("high", 10)):
        life.now += 1.0
        life.bound(name, {"min_tx_rate": 10_000}, spec={"priority": priority})
    for name in ("old", "young", "high"):
        life.now += 1.0
        life.edit(name, {"min_tx_rate": 40_000})
        rule = "30000 Mb/s more are needed, and others reserve too much"
        assert life.told() == [("Deferred", f"PF 'pf0': {rule}")]
    remove(life.machine, life.pods["big"], life.now)
    orders = life.writes()
    assert [one.pod.metadata.name for one in orders] == ["high", "old"]
    for order in orders:
        life.carry_out(order)
    life.put_in_force("high", 1)
    life.put_in_force("old", 1)
    life.now += 2.0
    life.edit("old", {"min_tx_rate": 10_000})
    life.write()
    assert life.writes() == []
    life.put_in_force("old", 2)
    assert [one.pod.metadata.name for one in life.writes()] == ["young"]


def test_a_new_leader_orders_by_since_when_the_condition_says_deferred(life: Life) -> None:
    """It has no memory but the API: of two pods it takes the one first that waits longer."""
    life.bound("big", {"min_tx_rate": 60_000})
    life.bound("first", {"min_tx_rate": 10_000})
    life.bound("second", {"min_tx_rate": 10_000})
    life.now = 2e9
    for name, since in (("first", "2026-01-01T00:00:09Z"), ("second", "2026-01-01T00:00:01Z")):
        life.pods[name].status.conditions = [Condition(CONDITION, "False", "Deferred", "", since)]
        life.edit(name, {"min_tx_rate": 60_000})
    remove(life.machine, life.pods["big"], life.now)
    assert [one.pod.metadata.name for one in life.writes()] == ["second"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([{}], [{}, {}], "annotation 'mooring.dev/interfaces': the pod has 1 VFs, and asks for 2 now: "),
        ([{}], [{"vlan": 5}], "annotation 'mooring.dev/interfaces'[0].vlan: the pod's VF was given otherwise: "),
        ([{}], [{"name": "x"}], "annotation 'mooring.dev/interfaces'[0].name: the pod's VF was given otherwise: "),
        ([{}], [{"network": "rail9"}], "annotation 'mooring.dev/interfaces'[0].network: "),
        ([{}], [{"pf": "pf9*"}], "annotation 'mooring.dev/interfaces'[0].pf: "),
        ([{}], [{"netdev": True}], "annotation 'mooring.dev/interfaces'[0].netdev: "),
        ([{}], [{"containers": ["other"]}], "annotation 'mooring.dev/interfaces'[0].containers: "),
        ([{}], [{"min_tx_rate": 2, "max_tx_rate": 1}], "annotation 'mooring.dev/interfaces'[0].min_tx_rate: 2 exceeds"),
    ],
)
def test_any_other_change_is_refused_in_words_and_nothing_happens(
    before: list[dict[str, Any]], after: list[dict[str, Any]], told: str, life: Life
) -> None:
    """Told once; when the request is as it was, that is told too."""
    life.bound("p", *before)
    life.edit("p", *after)
    ((reason, message),) = life.told()
    assert reason == "Refused"
    assert message.startswith(told)
    life.pods["p"].status.conditions = [Condition(CONDITION, "False", reason, message)]
    life.edit("p", *before)
    assert life.told() == [("InForce", "in force on node n1")]


def test_a_request_that_cannot_be_read_is_refused(life: Life) -> None:
    """As it is before a bind."""
    life.bound("p", {})
    life.annotate("p", {names.REQUEST: "["})
    assert [reason for reason, _ in life.told()] == ["Refused"]


@pytest.mark.parametrize(
    ("pf", "rate", "told"),
    [
        ({}, 95_000, "PF 'pf0': the pod would reserve 95000 Mb/s, and at most 90000 may be reserved"),
        ({"can": frozenset()}, 20_000, "PF 'pf0': min_tx_rate cannot be set by the PF's driver"),
    ],
)
def test_what_never_fits_is_infeasible(pf: dict[str, Any], rate: int, told: str, life: Life) -> None:
    """Whatever the others do."""
    life.bound("p", {})
    life.show_node(**pf)
    life.edit("p", {"min_tx_rate": rate})
    assert life.told() == [("Infeasible", told)]


def test_what_is_lowered_on_one_vf_is_not_free_for_another_one_before_it_is_in_force(life: Life) -> None:
    """Both at once would reserve more than the PF offers: the pod lowers first."""
    life.bound("p", {"min_tx_rate": 50_000}, {"min_tx_rate": 40_000})
    life.edit("p", {"min_tx_rate": 40_000}, {"min_tx_rate": 50_000})
    assert [reason for reason, _ in life.told()] == ["Infeasible"]
    life.edit("p", {"min_tx_rate": 40_000}, {"min_tx_rate": 40_000})
    life.write()
    life.now += 2.0
    life.put_in_force("p", 1)
    life.edit("p", {"min_tx_rate": 40_000}, {"min_tx_rate": 50_000})
    assert life.write().reserved == (40_000, 50_000)


def test_a_node_that_changes_no_rates_gets_none(life: Life) -> None:
    """Its advertiser is older, or does not do it; once it does, the change is decided."""
    life.in_force = None
    life.show_node()
    life.bound("p", {"min_tx_rate": 20_000})
    life.edit("p", {"min_tx_rate": 10_000})
    assert life.told() == [("Infeasible", "node n1 changes no rates of running pods")]
    life.in_force = {}
    life.show_node()
    assert len(life.writes()) == 1


def test_no_generation_is_written_that_no_reader_would_believe(life: Life) -> None:
    """A node says what it likes: that no generation comes after the one it has in force."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.put_in_force("p", LAST_GENERATION)
    life.edit("p", {"min_tx_rate": 10_000})
    assert life.told() == [("Infeasible", "node n1 says that the last generation is in force")]


def test_a_quota_is_not_passed_by_an_edit(life: Life) -> None:
    """The containers' limit of Mb/s cannot change, so neither can the sum of what the pod reserves."""
    limits = {"resources": {"limits": {"rdma-sriov/mbps": "20000"}}, "name": "c"}
    pod = life._make_pod("q", [{"min_tx_rate": 20_000}], spec={"containers": [limits]})
    node = life._make_node(
        "n1",
        (life._make_pf(),),
        annotations={names.RATES_IN_FORCE: '{"pods":{},"v":1}'},
        allocatable={"rdma-sriov/mbps": "90000"},
    )
    take_in(life.machine, node, pod)
    (bind,) = binds(steps(life.machine))
    life.show(as_bound(bind))
    life.edit("q", {"min_tx_rate": 20_001})
    ((reason, message),) = life.told()
    assert reason == "Infeasible"
    assert message == "the containers' limits of 'rdma-sriov/mbps' are 20000, and the pod would reserve 20001 Mb/s"


def test_a_write_that_was_not_carried_out_reserves_nothing(life: Life) -> None:
    """After a conflict it is decided again by what the watch shows; a pod that waits for the bandwidth gets it."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.edit("p", {"min_tx_rate": 90_000})
    (order,) = life.writes()
    take_in(life.machine, life._make_pod(request=[{"min_tx_rate": 70_000}]), now=life.now)
    assert binds(steps(life.machine, life.now)) == []
    life.finish(order, WriteRatesResult("changed"))
    assert life.left == 70_000
    life.now += 20.0
    assert len(binds(steps(life.machine, life.now))) == 1
    assert [reason for reason, _ in life.told()] == ["Deferred"]


def test_one_write_is_under_way_for_a_pod_and_a_second_passes_between_two(life: Life) -> None:
    """However often it is edited meanwhile: the last edit counts."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.edit("p", {"min_tx_rate": 21_000})
    (order,) = life.writes()
    for rate in range(22_000, 30_000, 1_000):
        life.edit("p", {"min_tx_rate": rate})
        assert life.writes() == []
    life.finish(order, WRITTEN)
    life.annotate("p", dict(order.annotations))
    assert life.writes() == []
    life.now += 1.0
    (order,) = life.writes()
    assert (order.rates.rates, order.rates.generation) == ((VfRates(29_000),), 2)


def test_writes_under_way_are_few_whoever_edits(life: Life, make_node: MakeNode, make_pf: MakePf) -> None:
    """Twenty pods of one user are edited; eight writes at once, and none of the pods is passed over."""
    pf = make_pf(vfs=20)
    node = make_node("n1", (pf,), annotations={names.RATES_IN_FORCE: '{"pods":{},"v":1}'})
    take_in(life.machine, node)
    for number in range(20):
        life.bound(f"p{number}", {"min_tx_rate": 1_000})
        life.edit(f"p{number}", {"min_tx_rate": 2_000})
    seen = set()
    orders = life.writes()
    while orders:
        assert len(orders) <= 8
        seen |= {order.pod.metadata.name for order in orders}
        for order in orders:
            life.carry_out(order)
        orders = life.writes()
    assert len(seen) == 20


def test_a_refusal_of_the_api_server_is_told_and_tried_again_after_a_minute(life: Life) -> None:
    """Such as rights that are missing."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.edit("p", {"min_tx_rate": 30_000})
    (order,) = life.writes()
    told = [one for one in life.finish(order, WriteRatesResult("refused", "no")) if isinstance(one, ReportRates)]
    assert [(one.reason, one.message) for one in told] == [("Deferred", "the API server refuses the rates: no")]
    assert life.left == 70_000
    life.now += 59.0
    assert life.writes() == []
    life.now += 2.0
    assert len(life.writes()) == 1


def test_a_pod_that_is_deleted_meanwhile_keeps_nothing(life: Life) -> None:
    """Neither while the write is under way nor after it."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.edit("p", {"min_tx_rate": 30_000})
    (order,) = life.writes()
    remove(life.machine, life.pods["p"], life.now)
    assert life.left == 90_000
    life.finish(order, WRITTEN)
    assert (life.left, life.machine.rate_changes.next_due()) == (90_000, None)


def test_bandwidth_that_is_kept_for_a_pod_that_preempts_is_not_given_to_a_raised_rate(life: Life) -> None:
    """Unless the running pod is more important."""
    life.bound("victim", {"min_tx_rate": 60_000})
    life.bound("p", {"min_tx_rate": 20_000})
    take_in(life.machine, life._make_pod("urgent", [{"min_tx_rate": 70_000}], spec={"priority": 10}))
    steps(life.machine, life.now)
    assert life.machine.nominator.node_of("uid-2") == "n1"
    remove(life.machine, life.pods["victim"], life.now)
    life.edit("p", {"min_tx_rate": 30_000})
    assert [reason for reason, _ in life.told()] == ["Deferred"]


def test_rates_are_signed_where_assignments_are(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
    """Over the annotation's exact text."""
    machine = Machine("mooring", sign_rates=lambda text: f"signed {text}")
    life = Life(machine, make_node, make_pf, make_pod)
    life.bound("p", {"min_tx_rate": 20_000})
    life.edit("p", {"min_tx_rate": 30_000})
    (order,) = life.writes()
    assert order.annotations[names.RATES_SIGNATURE] == f"signed {order.annotations[names.RATES]}"


def test_pods_of_other_schedulers_are_left_alone(life: Life) -> None:
    """They have their own."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.pods["p"].spec.scheduler_name = "other"
    life.edit("p", {"min_tx_rate": 30_000})
    assert life.decide() == []


def test_a_change_of_max_alone_reserves_nothing_more(life: Life) -> None:
    """It fits on a PF that has nothing left."""
    life.bound("p", {"min_tx_rate": 90_000})
    life.edit("p", {"min_tx_rate": 90_000, "max_tx_rate": 95_000})
    assert life.write() == replace(
        PodRates(life.pods["p"].metadata.uid, "n1", 1, (VfRates(90_000, 95_000),), (90_000,)), generation=1
    )


def test_what_was_lowered_is_not_raised_again_while_its_link_is_down(life: Life) -> None:
    """Not within what its VF still reserves either."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.edit("p", {"min_tx_rate": 10_000})
    life.write()
    life.now += 2.0
    life.show_node(up=False)
    life.edit("p", {"min_tx_rate": 15_000})
    assert ("Deferred", "PF 'pf0' is down") in life.told()


def test_a_pod_on_a_node_that_is_gone_waits_for_its_node(life: Life) -> None:
    """Nothing is told: the node may come back, and if it does not the pod is deleted."""
    life.bound("p", {"min_tx_rate": 20_000})
    life.machine.nodes(Removed(Identity("n1")), life.now)
    life.edit("p", {"min_tx_rate": 30_000})
    assert life.decide() == []
    life.show_node()
    assert len(life.writes()) == 1


def test_a_pod_that_is_edited_while_others_of_its_node_are_looked_at_is_not_passed_over(
    life: Life, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Forty pods wait, more than one step looks at: the first of them is edited again after the first step."""
    life.show_node(vfs=41)
    life.bound("big", {"min_tx_rate": 80_000})
    for number in range(40):
        life.bound(f"p{number}", {})
        life.edit(f"p{number}", {"min_tx_rate": 60_000})
    life.machine.tick(life.now)
    assert life.machine.rate_changes.next_due() is not None
    life.edit("p0", {"min_tx_rate": 1_000})
    assert [order.pod.metadata.name for order in life.writes()] == ["p0"]


def test_what_waits_on_a_busy_node_takes_no_memory_for_each_look(life: Life) -> None:
    """Each look says when to look again at the latest; only the next one counts."""
    life.bound("big", {"min_tx_rate": 80_000})
    life.bound("p", {})
    life.edit("p", {"min_tx_rate": 60_000})
    for _ in range(1000):
        life.now += 0.01
        life.machine.rate_changes.touch("n1", life.now)
        life.machine.tick(life.now)
    assert len(life.machine.rate_changes._due._heap) < 100


def test_a_pod_may_lower_where_its_cap_is_above_what_the_link_does_now(life: Life) -> None:
    """What it has and does not change is not asked for again."""
    life.bound("p", {"min_tx_rate": 20_000, "max_tx_rate": 95_000})
    life.show_node(mbps=40_000, offer_mbps=36_000)
    life.edit("p", {"min_tx_rate": 10_000, "max_tx_rate": 95_000})
    assert life.write().rates == (VfRates(10_000, 95_000),)
