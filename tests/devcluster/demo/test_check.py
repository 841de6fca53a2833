"""The demo's checks can fail: each is given a state in which its promise is broken."""

import json
from dataclasses import replace
from typing import Any

from devcluster.api import Api
from devcluster.demo import check
from devcluster.demo.check import ContainerView, VfInUse
from devcluster.demo.hosts import HostState, Link
from devcluster.demo.scenario import POD_GROUP, RANKS, WHOLE_NODE, DemoPod, late_pod, pods, ranks
from mooring import names

VF = {"pf": "enp4s0f0", "vf": 3, "pci": "0000:04:00.5", "min_tx_rate": 5000, "max_tx_rate": 9000}
GIVEN = VfInUse(
    pod="a",
    uid="uid-a",
    node="n1",
    entry=VF,
    interface="net1",
    in_pod=True,
    rates=(5000, 9000),
    own=frozenset({"uverbs5"}),
    ledger={"uid": "uid-a", "phase": "held"},
)
VIEW = ContainerView("a", "main", frozenset({"uverbs5", "rdma_cm"}), {})
PODS = [DemoPod("a", "Running", "")]
STATE = HostState((Link("enp4s0f0v0", "02:00:00:00:00:01", 1500, False, ()),), "{}", 0, 0)


def pod(name: str, *, node: str | None = "n1", assigned: bool = True, uid: str = "uid-a") -> dict[str, Any]:
    decided = json.dumps({"v": 1, "uid": uid, "node": "n1", "vfs": [VF]})
    annotations = {names.REQUEST: "[{}]"} | ({names.ASSIGNMENT: decided} if assigned else {})
    spec = {"nodeName": node} if node else {}
    metadata = {"name": name, "uid": "uid-a", "annotations": annotations}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def test_a_vf_given_once_holds_and_twice_does_not() -> None:
    """Promise 1: the same address in two pods, or a ledger that names another."""
    assert check.given_once([GIVEN]).held
    assert not check.given_once([GIVEN, replace(GIVEN, pod="b", uid="uid-b")]).held
    assert not check.given_once([replace(GIVEN, ledger={"uid": "uid-b", "phase": "held"})]).held
    assert not check.given_once([replace(GIVEN, ledger={"uid": "uid-a", "phase": "taking"})]).held


def test_a_check_that_looked_at_nothing_is_not_held() -> None:
    """A check that has seen no VF fails."""
    assert not check.given_once([]).held


def test_bound_without_an_assignment_breaks_promise_2() -> None:
    """Bound bare, assigned unbound, assigned for another, or changed later."""
    assert check.one_write({"uid-a": [pod("a", node=None, assigned=False), pod("a")]}).held
    assert not check.one_write({"uid-a": [pod("a", assigned=False), pod("a")]}).held
    assert not check.one_write({"uid-a": [pod("a", node=None), pod("a")]}).held
    assert not check.one_write({"uid-a": [pod("a", uid="uid-b")]}).held


def test_anything_but_the_decision_breaks_promise_3() -> None:
    """A VF not in the pod, other rates, a device missing, one too many, or one for a container without a right."""
    assert check.exactly_applied([GIVEN], [VIEW], PODS).held
    assert not check.exactly_applied([replace(GIVEN, in_pod=False)], [VIEW], PODS).held
    assert not check.exactly_applied([replace(GIVEN, rates=(0, 9000))], [VIEW], PODS).held
    assert not check.exactly_applied([GIVEN], [replace(VIEW, devices=frozenset({"rdma_cm"}))], PODS).held
    assert not check.exactly_applied([GIVEN], [replace(VIEW, devices=VIEW.devices | {"uverbs6"})], PODS).held
    assert not check.exactly_applied([GIVEN], [VIEW], [replace(PODS[0], only="worker")]).held


def test_a_plain_pod_with_anything_of_ours_breaks_promise_4() -> None:
    """Devices, variables or an assignment on a pod that requested no VF."""
    plain, bare = {"a": pod("a", assigned=False)}, replace(VIEW, devices=frozenset())
    assert check.untouched(plain, [bare], ["a"]).held
    assert not check.untouched(plain, [VIEW], ["a"]).held
    assert not check.untouched(plain, [replace(bare, variables={"MOORING_DEVICES": "[]"})], ["a"]).held
    assert not check.untouched({"a": pod("a")}, [bare], ["a"]).held


def test_any_trace_on_a_host_breaks_promise_5() -> None:
    """A link changed, a setting left, a ledger entry or an address kept."""
    assert check.given_back({"n1": STATE}, {"n1": STATE}).held
    for after in (
        replace(STATE, links=(replace(STATE.links[0], name="net1"),)),
        replace(STATE, vftable='{"pfs":1}'),
        replace(STATE, ledger=1),
        replace(STATE, addresses=1),
    ):
        assert not check.given_back({"n1": STATE}, {"n1": after}).held


def test_a_bad_request_that_is_let_in_or_refused_without_its_reason_breaks_promise_6() -> None:
    """A pod that the API server has, though it should have denied it; another reason than the expected one."""

    class NoEvents(Api):
        def events_of(self, pod: str) -> list[dict[str, Any]]:
            return []

    api, denied = NoEvents(""), [DemoPod("a", "Denied", "", says="not Mooring's")]
    assert check.refused_by_name(api, {}, denied, {"a": "it is not Mooring's"}).held
    assert not check.refused_by_name(api, {"a": pod("a")}, denied, {"a": "it is not Mooring's"}).held
    assert not check.refused_by_name(api, {}, denied, {"a": "no"}).held
    assert not check.refused_by_name(api, {}, denied, {}).held


def test_a_disturbed_pod_breaks_promise_7() -> None:
    """A pod that stopped, got other VFs, or never came after the programs were killed."""
    before = {"a": pod("a")}
    assert check.undisturbed(before, {"a": pod("a"), "late": pod("late")}, ["scheduler"], "late").held
    stopped = pod("a") | {"status": {"phase": "Failed"}}
    assert not check.undisturbed(before, {"a": stopped, "late": pod("late")}, [], "late").held
    assert not check.undisturbed(before, {"a": pod("a", uid="x"), "late": pod("late")}, [], "late").held
    assert not check.undisturbed(before, {"a": pod("a"), "late": stopped}, [], "late").held


def test_more_reserved_than_offered_breaks_promise_8() -> None:
    """The sum of min rates on a PF against what its node publishes."""
    inventory = json.dumps({"pfs": [{"name": "enp4s0f0", "offer_mbps": 9000}]})
    node = {"metadata": {"name": "n1", "annotations": {names.INVENTORY: inventory}}}
    assert check.within_offer([node], [GIVEN]).held
    assert not check.within_offer([node], [GIVEN, replace(GIVEN, pod="b")]).held


def test_a_rank_that_starts_before_the_others_breaks_promise_9() -> None:
    """One bound while the others wait, one that was not told what its job waits for, or one that never starts."""
    job, fits = ranks()[:2], "group train: 5 of 6 members fit: no"
    waits, runs = pod("rank", node=None) | {"status": {"phase": "Pending"}}, pod("rank")

    def verdict(waiting: dict[str, Any], said: str, after: dict[str, Any]) -> check.Verdict:
        """Return what is found if this is what one of two ranks does."""
        told = {"rank-0": fits, "rank-1": said}
        return check.all_or_none({"rank-0": waits, "rank-1": waiting}, told, {"rank-0": runs, "rank-1": after}, job)

    assert verdict(waits, fits, runs).held
    assert not verdict(runs, fits, runs).held
    assert not verdict(waits, "0/3 nodes are available", runs).held
    assert not verdict(waits, fits, waits).held
    assert not check.all_or_none({}, {}, {}, []).held


def test_the_ranks_of_the_job_are_one_pod_group() -> None:
    """All of them are needed, each names it, and the pod that makes room for them is one that runs."""
    job = [rank.manifest() for rank in ranks()]
    assert [one["spec"]["schedulingGroup"] for one in job] == [{"podGroupName": "train"}] * RANKS  # type: ignore[index]
    assert POD_GROUP["metadata"]["name"] == "train"
    assert POD_GROUP["spec"] == {"schedulingPolicy": {"gang": {"minCount": RANKS}}}
    assert WHOLE_NODE in {one.name for one in pods(["n1", "n2", "n3"]) if one.expect == "Running"}


def test_the_scenario_has_pods_that_must_run_and_pods_that_must_not() -> None:
    """Each pod that is refused names the text of its refusal."""
    wanted = [*pods(["n1", "n2", "n3"]), late_pod(), *ranks()]
    assert {pod.expect for pod in wanted} == {"Running", "Pending", "Denied"}
    assert all(pod.says for pod in wanted if pod.expect != "Running")
    assert len({pod.name for pod in wanted}) == len(wanted)
