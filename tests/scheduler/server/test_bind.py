"""One Binding against a server: whatever happens on the way, its outcome is definite."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from devcluster.apiserver.formats import protobuf
from devcluster.apiserver.http.faults import Fault, webhook_fails
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, failure
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.pod_info import PodInfo
from scheduler.server.writes import bind, binding
from tests.scheduler.conftest import MakePod
from tests.scheduler.server.cluster import PODS, Cluster

POST, GET = ("POST", "/binding$"), ("GET", "pods/p$")
LOST = Fault(*POST, "drop_after")


def _decision(pod: Pod, node: str = "n1", annotation: str = "ours") -> Bind:
    assigned = AssignedPod(pod.metadata.uid, pod.key, node, assumed=True)
    return Bind(PodInfo(pod, {}), assigned, {names.ASSIGNMENT: annotation}, {})


async def _bind(cluster: Cluster, pod: Pod, **decision: str) -> Outcome:
    return await bind(cluster.client, _decision(pod, **decision))


async def test_node_and_assignment_are_written_in_one_request(cluster: Cluster) -> None:
    """The pod carries both, and keeps what it carried before."""
    pod = await cluster.add_pod()
    await cluster.annotate("p", own="kept")
    assert (await _bind(cluster, pod)).kind == "bound"
    bound = await cluster.pod()
    assert (bound.spec.node_name, bound.annotations) == ("n1", {"own": "kept", names.ASSIGNMENT: "ours"})


async def test_the_binding_names_pod_uid_and_node(cluster: Cluster) -> None:
    """It is protobuf, which devcluster reads by the field numbers of Kubernetes' own files."""
    pod = await cluster.add_pod()
    about = {"name": "p", "namespace": "default", "uid": pod.metadata.uid, "annotations": {names.ASSIGNMENT: "ours"}}
    assert protobuf.decode(binding(_decision(pod))) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": about,
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


def _half_pod(kind: str, body: bytes) -> Any:
    return pytest.param((LOST, Fault(*GET, "body", times=2, code=200, body=body)), id=f"read-back-is-{kind}")


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param((Fault(*POST, "answer", times=2, code=500),), id="500"),
        pytest.param((Fault(*POST, "page", times=2, code=404),), id="404-of-a-proxy"),
        pytest.param((Fault(*POST, "answer", code=503),), id="503"),
        pytest.param((Fault(*POST, "answer", code=429),), id="429"),
        pytest.param((Fault(*POST, "drop_before", times=2),), id="request-lost"),
        pytest.param((LOST,), id="answer-lost"),
        pytest.param((Fault(*POST, "delay", delay_s=3.0),), id="answer-after-the-timeout"),
        # Nothing was written, but the code is 201: the pod would count as bound for ever.
        pytest.param((Fault(*POST, "body", times=2, code=201, body=b"{}"),), id="answer-not-whole"),
        # The pod would count as gone.
        pytest.param((LOST, Fault(*GET, "page", times=2, code=404)), id="read-back-404-of-a-proxy"),
        # It would be a pod without a node, whose VFs are given to another pod.
        _half_pod("empty", b"{}"),
        _half_pod("no-pod", b'{"kind":"Pod","apiVersion":"v1","metadata":{}}'),
        _half_pod(
            "a-status",
            b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":404,"reason":"NotFound"}',
        ),
        _half_pod("a-list", b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}'),
    ],
)
async def test_an_unknown_outcome_is_repeated_until_it_is_known(
    faults: tuple[Fault, ...], cluster: Cluster, server: ApiServer
) -> None:
    """Carried out or not, the identical Binding is sent again; one that was carried out is found to be ours."""
    pod = await cluster.add_pod()
    for fault in faults:
        server.faults.plan(replace(fault))
    assert (await _bind(cluster, pod)).kind == "bound"
    assert await cluster.is_bound()


async def test_a_read_back_that_is_refused_is_repeated(cluster: Cluster, server: ApiServer) -> None:
    """A 409 of unknown meaning, and then no permission to read: the outcome waits until the pod can be read."""
    pod = await cluster.add_pod()
    server.faults.plan(Fault(*POST, "answer", times=1, code=409))
    server.faults.plan(Fault(*GET, "answer", times=2, code=403))
    assert (await _bind(cluster, pod)).kind == "changed"


async def test_a_pod_bound_by_another_is_taken(cluster: Cluster) -> None:
    """The same node does not make it ours: the assignment must be there."""
    pod = await cluster.add_pod()
    assert (await _bind(cluster, pod, annotation="theirs")).kind == "bound"
    assert (await _bind(cluster, pod)).kind == "taken"
    assert (await _bind(cluster, pod, node="n2", annotation="theirs")).kind == "taken"


async def test_a_pod_that_is_gone_after_a_lost_answer_counts_as_gone(cluster: Cluster, server: ApiServer) -> None:
    """If the read-back finds no pod there is nothing to hold."""
    pod = await cluster.add_pod()
    server.faults.plan(Fault(*POST, "drop_before"))
    task = asyncio.create_task(_bind(cluster, pod))
    await cluster.call("DELETE", f"{PODS}/p")
    assert (await task).kind == "gone"


async def test_a_pod_that_may_not_be_bound_is_not(cluster: Cluster) -> None:
    """Another of its name, since the uid in the Binding is a precondition; one with a gate; one that is deleted."""
    old = await cluster.add_pod()
    await cluster.call("DELETE", f"{PODS}/p")
    await cluster.add_pod()
    assert (await _bind(cluster, old)).kind == "changed"
    gated = await cluster.add_pod("gated", schedulingGates=[{"name": "wait"}])
    assert (await _bind(cluster, gated)).kind == "gated"
    # A finalizer keeps it.
    deleted = await cluster.add_pod("deleted", metadata={"finalizers": ["example.org/hold"]})
    await cluster.call("DELETE", f"{PODS}/deleted")
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
    """Each learns the outcome; the pod carries the winner's assignment and no other's."""
    pod = await cluster.add_pod()
    decisions = [_decision(pod, node=f"n{number % 2}", annotation=f"of {number}") for number in range(8)]
    outcomes = await asyncio.gather(*(bind(cluster.client, decision) for decision in decisions))
    assert sorted(one.kind for one in outcomes) == ["bound", *["taken"] * 7]
    (winner,) = [decision for decision, one in zip(decisions, outcomes, strict=True) if one.kind == "bound"]
    bound = await cluster.pod()
    assert (bound.spec.node_name, bound.annotations) == (winner.assigned.node, dict(winner.annotations))


class _Scripted:
    """A client with scripted answers, in turn."""

    def __init__(self, *answers: bytes | KubeError) -> None:
        self._answers = iter(answers)

    async def request(self, *_: object, **__: object) -> bytes:
        answer = next(self._answers)
        if isinstance(answer, KubeError):
            raise answer
        return answer


DENIAL = {"kind": "Status", "message": 'admission webhook "w.example.com" denied the request: no'}


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [("forbidden", failure(403, b"{}")), ("denied", failure(400, msgspec.json.encode(DENIAL)))],
    ids=["forbidden", "denied"],
)
async def test_a_refusal_counts_only_once_no_earlier_copy_can_still_arrive(
    kind: str, refusal: KubeError, make_pod: MakePod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is lost, the repetition refused, and then the first one arrives: the pod is ours."""
    monkeypatch.setattr("scheduler.server.writes.ON_ITS_WAY_S", 0.01)
    pod = make_pod()
    metadata = {"name": pod.metadata.name, "uid": pod.metadata.uid, "resourceVersion": "7"}
    waiting: dict[str, Any] = {"kind": "Pod", "metadata": metadata}
    ours = {names.ASSIGNMENT: "ours"}
    bound = {"kind": "Pod", "metadata": metadata | {"annotations": ours}, "spec": {"nodeName": "n1"}}
    lost = failure(500, b"{}")
    for answers, outcome in (
        ((lost, refusal, msgspec.json.encode(bound)), "bound"),
        ((lost, refusal, msgspec.json.encode(waiting)), kind),
        ((refusal,), kind),
    ):
        assert (await bind(cast(Client, _Scripted(*answers)), _decision(pod))).kind == outcome


async def test_a_webhook_that_fails_denies_the_bind_and_leaves_nothing_behind(
    cluster: Cluster, server: ApiServer
) -> None:
    """Admission comes before storage: there is no earlier copy, so nobody waits and reads the pod back."""
    pod = await cluster.add_pod()
    server.faults.plan(webhook_fails(*POST))
    server.faults.plan(Fault(*GET, "drop_before", times=1000))
    outcome = await _bind(cluster, pod)
    assert outcome.kind == "denied"
    assert 'failed calling webhook "hook.example.com"' in outcome.reason


async def test_a_webhook_that_takes_longer_than_the_first_try_is_waited_for(
    cluster: Cluster, server: ApiServer
) -> None:
    """The first copy is given up after the client's timeout of 2 s, the second one waits for its answer."""
    pod = await cluster.add_pod()
    server.faults.plan(webhook_fails(*POST, times=2, delay_s=2.5))
    assert (await _bind(cluster, pod)).kind == "denied"
