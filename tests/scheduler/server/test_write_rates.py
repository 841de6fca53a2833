"""Rates of a running pod against a server: whatever happens on the way, the outcome is definite."""

import asyncio
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault, FaultKind
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.rates import PodRates, RatesInForce, VfRates, dump_rates, dump_rates_in_force, read_rates
from mooring.kube.client import MERGE_PATCH, Client
from scheduler.cycle.instructions import WriteRates
from scheduler.kube.objects import Pod
from scheduler.server import writes as module
from scheduler.server.writes import write_rates
from tests.scheduler.server.stage import PODS, MakeNode, MakePf, Stage
from tests.support.polling import eventually

NOW = "2026-01-01T00:00:00Z"


async def _create(client: Client) -> Pod:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return msgspec.json.decode(await client.request("POST", PODS, msgspec.json.encode(body)), type=Pod)


async def _get(client: Client) -> Pod:
    return msgspec.json.decode(await client.request("GET", f"{PODS}/p"), type=Pod)


async def _touch(client: Client) -> None:
    patch = {"metadata": {"annotations": {"own": "kept"}}}
    await client.request("PATCH", f"{PODS}/p", msgspec.json.encode(patch), MERGE_PATCH)


def _order(pod: Pod, rate: int = 1) -> WriteRates:
    rates = PodRates(pod.metadata.uid, "n1", 1, (VfRates(rate),), (rate,))
    return WriteRates(pod, rates, {names.RATES: dump_rates(rates)}, "allocated")


async def test_rates_and_condition_are_written_in_one_request(client: Client, server: ApiServer) -> None:
    """The pod keeps what it carried before."""
    await _create(client)
    await _touch(client)
    order = _order(await _get(client))
    assert (await write_rates(client, order, NOW)).kind == "written"
    shown = await _get(client)
    assert shown.annotations == {"own": "kept", **order.annotations}
    (condition,) = (one for one in shown.status.conditions or () if one.type == "MooringRates")
    assert (condition.status, condition.reason, condition.message) == ("False", "Allocated", "allocated")


@pytest.mark.parametrize(
    ("kind", "code", "times"),
    [
        ("answer", 500, 2),
        ("page", 404, 2),
        ("answer", 429, 1),
        ("drop_before", 0, 2),
        ("drop_after", 0, 1),
    ],
)
async def test_an_unknown_outcome_is_repeated_until_it_is_known(
    kind: FaultKind, code: int, times: int, client: Client, server: ApiServer
) -> None:
    """Carried out or not, the identical write is sent again; one that was carried out is found to be ours."""
    order = _order(await _create(client))
    server.faults.plan(Fault("PATCH", "/status$", kind, times=times, code=code))
    assert (await write_rates(client, order, NOW)).kind == "written"
    assert (await _get(client)).annotations == order.annotations


async def test_a_pod_that_has_changed_is_not_written(client: Client) -> None:
    """Its request may be another one: this is decided again."""
    order = _order(await _create(client))
    await _touch(client)
    assert (await write_rates(client, order, NOW)).kind == "changed"
    assert names.RATES not in (await _get(client)).annotations


async def test_a_write_that_was_lost_and_then_conflicts_is_not_ours(client: Client, server: ApiServer) -> None:
    """Somebody else changed the pod between the request that never came and its repetition."""
    order = _order(await _create(client))
    server.faults.plan(Fault("PATCH", "/status$", "drop_before"))
    task = asyncio.create_task(write_rates(client, order, NOW))
    await _touch(client)
    assert (await task).kind == "changed"


async def test_a_recreated_pod_of_the_same_name_is_not_written(client: Client) -> None:
    """Nor one that is gone."""
    order = _order(await _create(client))
    await client.request("DELETE", f"{PODS}/p")
    assert (await write_rates(client, order, NOW)).kind == "gone"
    await _create(client)
    assert (await write_rates(client, order, NOW)).kind == "changed"
    assert (await _get(client)).annotations == {}


async def test_a_refusal_counts_only_once_no_earlier_copy_can_still_arrive(
    client: Client, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write whose answer was lost was carried out, and its repetition is forbidden."""
    monkeypatch.setattr(module, "ON_ITS_WAY_S", 0.01)
    order = _order(await _create(client))
    server.faults.plan(Fault("PATCH", "/status$", "drop_after"))
    server.faults.plan(Fault("PATCH", "/status$", "answer", code=403))
    assert (await write_rates(client, order, NOW)).kind == "written"
    server.faults.plan(Fault("PATCH", "/status$", "answer", code=403))
    assert (await write_rates(client, _order(await _get(client), rate=2), NOW)).kind == "refused"


async def _condition(stage: Stage) -> tuple[str | None, str | None]:
    pod = await stage.pod("p")
    found = [one for one in (pod.status.conditions if pod is not None else None) or () if one.type == "MooringRates"]
    return (found[0].status, found[0].reason) if found else (None, None)


async def _edit(stage: Stage, text: str) -> None:
    patch = {"metadata": {"annotations": {names.REQUEST: text}}}
    await stage.client.request("PATCH", f"{PODS}/p", msgspec.json.encode(patch), MERGE_PATCH)


async def _say_in_force(stage: Stage, pods: dict[str, int]) -> None:
    patch = {"metadata": {"annotations": {names.RATES_IN_FORCE: dump_rates_in_force(RatesInForce(pods))}}}
    await stage.client.request("PATCH", "/api/v1/nodes/n1", msgspec.json.encode(patch), MERGE_PATCH)


async def test_an_edit_goes_from_the_pod_to_what_its_node_says(
    stage: Stage, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Bound, edited, allocated, in force: with a condition and events; an edit of anything else is refused."""
    await stage.add_node(make_node("n1", (make_pf(),)))
    await _say_in_force(stage, {})
    pod = await stage.add_pod("p", {"annotations": {names.REQUEST: '[{"min_tx_rate":1000}]'}})
    async with stage.run():
        stage.loop.lead()
        await eventually(lambda: stage.is_bound("p"))
        await _edit(stage, '[{"min_tx_rate":2000}]')
        await eventually(lambda: _is(stage, ("False", "Allocated")))
        shown: Any = await stage.pod("p")
        assert read_rates(shown.annotations[names.RATES]).rates == (VfRates(2000),)
        await _say_in_force(stage, {pod.metadata.uid: 1})
        await eventually(lambda: _is(stage, ("True", "InForce")))
        await _edit(stage, '[{"min_tx_rate":2000,"trust":true}]')
        await eventually(lambda: _is(stage, ("False", "Refused")))
        wanted = {"RatesAllocated", "RatesInForce", "RatesRefused"}
        await eventually(lambda: _has_events(stage, wanted))


async def _is(stage: Stage, wanted: tuple[str, str]) -> bool:
    return await _condition(stage) == wanted


async def _has_events(stage: Stage, wanted: set[str]) -> bool:
    return wanted <= {reason for reason, _ in await stage.events("p")}


async def test_a_standby_decides_about_no_edit(stage: Stage, make_node: MakeNode, make_pf: MakePf) -> None:
    """It records it, and decides once it leads."""
    await stage.add_node(make_node("n1", (make_pf(),)))
    await _say_in_force(stage, {})
    await stage.add_pod("p", {"annotations": {names.REQUEST: '[{"min_tx_rate":1000}]'}})
    async with stage.run():
        stage.loop.lead()
        await eventually(lambda: stage.is_bound("p"))
        stage.leads = False
        await _edit(stage, '[{"min_tx_rate":2000}]')
        await eventually(lambda: _is_due(stage))
        assert await _condition(stage) == (None, None)
        stage.leads = True
        await eventually(lambda: _is(stage, ("False", "Allocated")))


async def _is_due(stage: Stage) -> bool:
    return stage.machine.rate_changes.next_due() is not None
