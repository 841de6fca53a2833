"""Rates of a running pod against a server: whatever happens on the way, the outcome is definite."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from devcluster.apiserver.http.faults import Fault, FaultKind
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.rates import PodRates, RatesInForce, VfRates, dump_rates, dump_rates_in_force, read_rates
from scheduler.cycle.instructions import WriteRates
from scheduler.kube.objects import Pod
from scheduler.server import writes as module
from scheduler.server.writes import write_rates
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import NODES, PODS, Cluster
from tests.scheduler.server.stage import Stage
from tests.support.polling import eventually, until

NOW = "2026-01-01T00:00:00Z"


def _order(pod: Pod, rate: int = 1) -> WriteRates:
    rates = PodRates(pod.metadata.uid, "n1", 1, (VfRates(rate),), (rate,))
    return WriteRates(pod, rates, {names.RATES: dump_rates(rates)}, "allocated")


async def test_rates_and_condition_are_written_in_one_request(cluster: Cluster, server: ApiServer) -> None:
    """The pod keeps what it carried before."""
    await cluster.add_pod()
    await cluster.annotate("p", own="kept")
    order = _order(await cluster.pod())
    assert (await write_rates(cluster.client, order, NOW)).kind == "written"
    shown = await cluster.pod()
    assert shown.annotations == {"own": "kept", **order.annotations}
    condition = shown.condition("MooringRates")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", "Allocated", "allocated")


@pytest.mark.parametrize(
    ("kind", "code", "times"),
    [("answer", 500, 2), ("page", 404, 2), ("answer", 429, 1), ("drop_before", 0, 2), ("drop_after", 0, 1)],
)
async def test_an_unknown_outcome_is_repeated_until_it_is_known(
    kind: FaultKind, code: int, times: int, cluster: Cluster, server: ApiServer
) -> None:
    """Carried out or not, the identical write is sent again; one that was carried out is found to be ours."""
    order = _order(await cluster.add_pod())
    server.faults.plan(Fault("PATCH", "/status$", kind, times=times, code=code))
    assert (await write_rates(cluster.client, order, NOW)).kind == "written"
    assert (await cluster.pod()).annotations == order.annotations


async def test_a_pod_that_has_changed_is_not_written(cluster: Cluster) -> None:
    """Its request may be another one: this is decided again."""
    order = _order(await cluster.add_pod())
    await cluster.annotate("p", own="kept")
    assert (await write_rates(cluster.client, order, NOW)).kind == "changed"
    assert names.RATES not in (await cluster.pod()).annotations


async def test_a_write_that_was_lost_and_then_conflicts_is_not_ours(cluster: Cluster, server: ApiServer) -> None:
    """Somebody else changed the pod between the request that never came and its repetition."""
    order = _order(await cluster.add_pod())
    server.faults.plan(Fault("PATCH", "/status$", "drop_before"))
    task = asyncio.create_task(write_rates(cluster.client, order, NOW))
    await cluster.annotate("p", own="kept")
    assert (await task).kind == "changed"


async def test_a_recreated_pod_of_the_same_name_is_not_written(cluster: Cluster) -> None:
    """Nor one that is gone."""
    order = _order(await cluster.add_pod())
    await cluster.call("DELETE", f"{PODS}/p")
    assert (await write_rates(cluster.client, order, NOW)).kind == "gone"
    await cluster.add_pod()
    assert (await write_rates(cluster.client, order, NOW)).kind == "changed"
    assert (await cluster.pod()).annotations == {}


async def test_a_refusal_counts_only_once_no_earlier_copy_can_still_arrive(
    cluster: Cluster, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write whose answer was lost was carried out, and its repetition is forbidden."""
    monkeypatch.setattr(module, "ON_ITS_WAY_S", 0.01)
    order = _order(await cluster.add_pod())
    server.faults.plan(Fault("PATCH", "/status$", "drop_after"))
    server.faults.plan(Fault("PATCH", "/status$", "answer", code=403))
    assert (await write_rates(cluster.client, order, NOW)).kind == "written"
    server.faults.plan(Fault("PATCH", "/status$", "answer", code=403))
    assert (await write_rates(cluster.client, _order(await cluster.pod(), rate=2), NOW)).kind == "refused"


async def _say_in_force(stage: Stage, pods: dict[str, int]) -> None:
    text = dump_rates_in_force(RatesInForce(pods))
    await stage.patch(f"{NODES}/n1", metadata={"annotations": {names.RATES_IN_FORCE: text}})


@pytest.fixture
async def edited(stage: Stage, make_node: MakeNode, make_pf: MakePf) -> AsyncIterator[Stage]:
    """Give a leader that has bound a pod whose rates can be edited."""
    await stage.add_node(make_node("n1", (make_pf(),)))
    await _say_in_force(stage, {})
    await stage.add_pod("p", '[{"min_tx_rate":1000}]')
    async with stage.lead():
        await eventually(stage.is_bound)
        yield stage


async def _edit(stage: Stage, text: str) -> None:
    await stage.annotate("p", **{names.REQUEST: text})


async def _reaches(stage: Stage, status: str, reason: str) -> None:
    """Wait until the pod's condition is this."""

    async def found() -> bool:
        condition = await stage.condition("p", "MooringRates")
        return condition is not None and (condition.status, condition.reason) == (status, reason)

    await eventually(found)


async def test_an_edit_goes_from_the_pod_to_what_its_node_says(edited: Stage) -> None:
    """Bound, edited, allocated, in force: with a condition and events; an edit of anything else is refused."""
    await _edit(edited, '[{"min_tx_rate":2000}]')
    await _reaches(edited, "False", "Allocated")
    shown = await edited.pod()
    assert read_rates(shown.annotations[names.RATES]).rates == (VfRates(2000),)
    await _say_in_force(edited, {shown.metadata.uid: 1})
    await _reaches(edited, "True", "InForce")
    await _edit(edited, '[{"min_tx_rate":2000,"trust":true}]')
    await _reaches(edited, "False", "Refused")

    async def are_told() -> bool:
        return {"RatesAllocated", "RatesInForce", "RatesRefused"} <= set(await edited.reasons("p"))

    await eventually(are_told)


async def test_a_standby_decides_about_no_edit(edited: Stage) -> None:
    """It records it, and decides once it leads."""
    edited.leads = False
    await _edit(edited, '[{"min_tx_rate":2000}]')
    await until(lambda: edited.machine.rate_changes.next_due() is not None)
    assert await edited.condition("p", "MooringRates") is None
    edited.leads = True
    await _reaches(edited, "False", "Allocated")
