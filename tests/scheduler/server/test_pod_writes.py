"""One write to a pod against a server, a Binding or new rates: whatever happens on the way, its outcome is definite."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from devcluster.apiserver.formats import protobuf
from devcluster.apiserver.http.faults import Fault, FaultKind, webhook_fails
from mooring import names
from mooring.annotations.rates import PodRates, RatesInForce, VfRates, dump_rates, dump_rates_in_force, read_rates
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import WriteRates, WriteRatesResult
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.pod_info import PodInfo
from scheduler.server import writes
from scheduler.server.writes import bind, binding, write_rates
from tests.scheduler.server.cluster import NODES, Cluster, when
from tests.scheduler.server.stage import Stage
from tests.support.polling import until

NOW = "2026-01-01T00:00:00Z"


def _decision(pod: Pod, node: str = "n1", annotation: str = "ours") -> Bind:
    assigned = AssignedPod(pod.metadata.uid, pod.key, node, assumed=True)
    return Bind(PodInfo(pod, {}), assigned, {names.ASSIGNMENT: annotation}, {})


def _bind(cluster: Cluster, pod: Pod, **decision: str) -> Coroutine[Any, Any, Outcome]:
    return bind(cluster.client, _decision(pod, **decision))


def _rates(pod: Pod) -> WriteRates:
    rates = PodRates(pod.metadata.uid, "n1", 1, (VfRates(1),), (1,))
    return WriteRates(pod, rates, {names.RATES: dump_rates(rates)}, "allocated")


def _is_bound(pod: Pod) -> bool:
    return (pod.spec.node_name, pod.annotations[names.ASSIGNMENT]) == ("n1", "ours")


def _has_rates(pod: Pod) -> bool:
    condition = pod.condition("MooringRates")
    assert condition is not None
    shown = (condition.status, condition.reason, condition.message, pod.annotations[names.RATES])
    return shown == ("False", "Allocated", "allocated", _rates(pod).annotations[names.RATES])


class PodWrite(NamedTuple):
    """A request, what sends it about a pod, the outcome of a success, and whether a pod shows it."""

    method: str
    path: str
    send: Callable[[Cluster, Pod], Coroutine[Any, Any, Outcome | WriteRatesResult]]
    success: str
    is_shown: Callable[[Pod], bool]


BINDING = PodWrite("POST", "/binding$", _bind, "bound", _is_bound)
RATES = PodWrite(
    "PATCH", "/status$", lambda cluster, pod: write_rates(cluster.client, _rates(pod), NOW), "written", _has_rates
)
each_write = pytest.mark.parametrize("write", [pytest.param(BINDING, id="binding"), pytest.param(RATES, id="rates")])


def _plan(cluster: Cluster, write: PodWrite, *faults: Fault) -> None:
    """Plan these faults: of the write itself, if they name no other request."""
    cluster.plan(*(one if one.path else replace(one, method=write.method, path=write.path) for one in faults))


def _sent(kind: FaultKind, **fields: Any) -> Fault:
    return Fault("", "", kind, **fields)


def _read(kind: FaultKind, **fields: Any) -> Fault:
    return Fault("GET", "pods/p$", kind, **fields)


def _half_pod(body: bytes) -> tuple[Fault, ...]:
    return _sent("drop_after"), _read("body", times=2, code=200, body=body)


@each_write
async def test_node_or_condition_and_annotation_are_written_in_one_request(cluster: Cluster, write: PodWrite) -> None:
    """The pod keeps what it carried before."""
    await cluster.add_pod(annotations={"own": "kept"})
    assert (await write.send(cluster, await cluster.pod())).kind == write.success
    pod = await cluster.pod()
    assert write.is_shown(pod)
    assert (pod.annotations["own"], len(pod.annotations)) == ("kept", 2)


async def test_the_binding_names_pod_uid_and_node(cluster: Cluster) -> None:
    """It is protobuf, which devcluster reads by the field numbers of Kubernetes' own files."""
    pod = await cluster.add_pod()
    about = {"name": "p", "namespace": "default", "uid": pod.metadata.uid, "annotations": {names.ASSIGNMENT: "ours"}}
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    shown = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}
    assert protobuf.decode(binding(_decision(pod))) == shown


@each_write
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param((_sent("answer", times=2, code=500),), id="500"),
        pytest.param((_sent("page", times=2, code=404),), id="404-of-a-proxy"),
        pytest.param((_sent("answer", code=503),), id="503"),
        pytest.param((_sent("answer", code=429),), id="429"),
        pytest.param((_sent("drop_before", times=2),), id="request-lost"),
        pytest.param((_sent("drop_after"),), id="answer-lost"),
        pytest.param((_sent("delay", delay_s=3.0),), id="answer-after-the-timeout"),
        # Nothing was written, but the code is 201: the pod would count as bound for ever.
        pytest.param((_sent("body", times=2, code=201, body=b"{}"),), id="answer-not-whole"),
        # The pod would count as gone.
        pytest.param((_sent("drop_after"), _read("page", times=2, code=404)), id="read-back-404-of-a-proxy"),
        # It would be a pod without a node, whose VFs are given to another pod.
        pytest.param(_half_pod(b"{}"), id="read-back-is-empty"),
        pytest.param(_half_pod(b'{"kind":"Pod","apiVersion":"v1","metadata":{}}'), id="read-back-is-no-pod"),
        pytest.param(_half_pod(b'{"kind":"Status","status":"Failure","code":404,"reason":"NotFound"}'), id="status"),
        pytest.param(_half_pod(b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}'), id="list"),
    ],
)
async def test_an_unknown_outcome_is_repeated_until_it_is_known(
    faults: tuple[Fault, ...], write: PodWrite, cluster: Cluster
) -> None:
    """Carried out or not, the identical write is sent again; one that was carried out is found to be ours."""
    pod = await cluster.add_pod()
    _plan(cluster, write, *faults)
    assert (await write.send(cluster, pod)).kind == write.success
    assert not cluster.server.faults.planned
    assert write.is_shown(await cluster.pod())


@each_write
@pytest.mark.parametrize("earlier", [None, "drop_before", "drop_after"])
@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(_sent("answer", code=403), id="forbidden"),
        pytest.param(_sent("answer", code=400, message='admission webhook "w" denied the request: no'), id="denied"),
        # Admission comes before storage.
        pytest.param(webhook_fails("", ""), id="webhook-fails"),
    ],
)
async def test_a_refusal_counts_only_once_no_earlier_copy_can_still_arrive(
    earlier: FaultKind | None, refusal: Fault, write: PodWrite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an earlier copy nobody waits or reads the pod back; a write whose answer was lost may be ours."""
    monkeypatch.setattr(writes, "ON_ITS_WAY_S", 0.01 if earlier else 1000.0)
    pod = await cluster.add_pod()
    _plan(cluster, write, _sent(earlier) if earlier else _read("drop_before", times=1000), refusal)
    result = await write.send(cluster, pod)
    assert [fault.times for fault in cluster.server.faults.planned] == ([] if earlier else [1000])
    if earlier == "drop_after":
        assert result.kind == write.success
        assert write.is_shown(await cluster.pod())
    else:
        assert result.kind == ("refused" if write is RATES else "forbidden" if refusal.code == 403 else "denied")
        assert refusal.message in result.reason


async def test_a_webhook_that_takes_longer_than_the_first_try_is_waited_for(cluster: Cluster) -> None:
    """The first copy is given up after the client's timeout of 2 s, the second one waits for its answer."""
    pod = await cluster.add_pod()
    cluster.plan(webhook_fails("POST", "/binding$", times=2, delay_s=2.5))
    assert (await _bind(cluster, pod)).kind == "denied"


async def test_a_read_back_that_is_refused_is_repeated(cluster: Cluster) -> None:
    """A 409 of unknown meaning, and then no permission to read: the outcome waits until the pod can be read."""
    pod = await cluster.add_pod()
    _plan(cluster, BINDING, _sent("answer", code=409), _read("answer", times=2, code=403))
    assert (await _bind(cluster, pod)).kind == "changed"


@each_write
async def test_a_pod_that_is_gone_and_another_of_its_name_are_not_written(cluster: Cluster, write: PodWrite) -> None:
    """Gone before the write, or between a lost request and its repetition: there is nothing to hold."""
    old = await cluster.add_pod()
    _plan(cluster, write, _sent("drop_before"))
    writing = asyncio.create_task(write.send(cluster, old))
    await cluster.delete("p")
    assert (await writing).kind == "gone"
    assert (await write.send(cluster, old)).kind == "gone"
    await cluster.add_pod()
    assert (await write.send(cluster, old)).kind == "changed"
    pod = await cluster.pod()
    assert (pod.spec.node_name, pod.annotations) == (None, {})


async def test_a_pod_with_a_gate_or_a_deletion_is_not_bound(cluster: Cluster) -> None:
    gated = await cluster.add_pod("gated", schedulingGates=[{"name": "wait"}])
    assert (await _bind(cluster, gated)).kind == "gated"
    # A finalizer keeps it.
    deleted = await cluster.add_pod("deleted", metadata={"finalizers": ["example.org/hold"]})
    await cluster.delete("deleted")
    assert (await _bind(cluster, deleted)).kind == "deleting"
    assert not any(pod.spec.node_name for pod in (await cluster.pods()).values())


# aiohttp warns about bodies over 1 MiB; ours never come near.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_binding_too_large_for_the_api_server_is_refused(cluster: Cluster) -> None:
    """413, and etcd's limit wrapped in a 409: neither is a conflict, and neither is repeated."""
    pod = await cluster.add_pod()
    for size in (3_200_000, 2_097_152):
        assert (await _bind(cluster, pod, annotation="x" * size)).kind == "refused"


async def test_of_eight_concurrent_binds_of_one_pod_one_succeeds(cluster: Cluster) -> None:
    """Each learns the outcome; the pod carries the winner's assignment and no other's, on the same node either."""
    pod = await cluster.add_pod()
    decisions = [_decision(pod, node=f"n{number % 2}", annotation=f"of {number}") for number in range(8)]
    outcomes = await asyncio.gather(*(bind(cluster.client, decision) for decision in decisions))
    assert sorted(one.kind for one in outcomes) == ["bound", *["taken"] * 7]
    (winner,) = [decision for decision, one in zip(decisions, outcomes, strict=True) if one.kind == "bound"]
    bound = await cluster.pod()
    assert (bound.spec.node_name, bound.annotations) == (winner.assigned.node, dict(winner.annotations))


async def test_rates_of_a_pod_that_has_changed_are_decided_again(cluster: Cluster) -> None:
    """Its request may be another one: changed before the write, or between a lost write and its repetition."""
    pod = await cluster.add_pod()
    await cluster.annotate("p", own="kept")
    assert (await RATES.send(cluster, pod)).kind == "changed"
    _plan(cluster, RATES, _sent("drop_before"))
    writing = asyncio.create_task(RATES.send(cluster, await cluster.pod()))
    await cluster.annotate("p", own="again")
    assert (await writing).kind == "changed"
    assert (await cluster.pod()).annotations == {"own": "again"}


async def test_an_edit_goes_from_the_pod_to_what_its_node_reports(stage: Stage) -> None:
    """Bound, edited, allocated, in force: with a condition and events; an edit of anything else is refused.

    A standby records an edit, and decides once it leads.
    """

    async def put_in_force(pods: dict[str, int]) -> None:
        text = dump_rates_in_force(RatesInForce(pods))
        await stage.patch(f"{NODES}/n1", metadata={"annotations": {names.RATES_IN_FORCE: text}})

    await stage.add_rdma_node("n1", vfs=4)
    await put_in_force({})
    await stage.add_pod("p", '[{"min_tx_rate":1000}]')
    async with stage.lead():
        uid = (await stage.bound_pod("p")).metadata.uid
        stage.leads = False
        await stage.annotate("p", **{names.REQUEST: '[{"min_tx_rate":2000}]'})
        await until(lambda: stage.machine.rate_changes.next_due() is not None)
        assert await stage.condition("p", "MooringRates") is None
        stage.leads = True
        await stage.reaches("p", "MooringRates", status="False", reason="Allocated")
        assert read_rates((await stage.pod()).annotations[names.RATES]).rates == (VfRates(2000),)
        await put_in_force({uid: 1})
        await stage.reaches("p", "MooringRates", status="True", reason="InForce")
        await stage.annotate("p", **{names.REQUEST: '[{"min_tx_rate":2000,"trust":true}]'})
        await stage.reaches("p", "MooringRates", status="False", reason="Refused")
        reported = {"RatesAllocated", "RatesInForce", "RatesRefused"}
        await when(lambda: stage.reasons("p"), reported.issubset)
