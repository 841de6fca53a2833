"""One Binding against a server: whatever happens on the way, its outcome is definite."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from devcluster.apiserver.formats import protobuf
from devcluster.apiserver.http.faults import Fault, FaultKind, webhook_fails
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import KubeError, failure
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import PodInfo
from scheduler.server.writes import bind, binding

PODS = "/api/v1/namespaces/default/pods"
Create = Callable[..., Any]


async def _create(client: Client, **spec: Any) -> Pod:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    return msgspec.json.decode(await client.request("POST", PODS, msgspec.json.encode(body)), type=Pod)


async def _get(client: Client) -> Pod:
    return msgspec.json.decode(await client.request("GET", f"{PODS}/p"), type=Pod)


def _decision(pod: Pod, node: str = "n1", annotation: str = "ours") -> Bind:
    assigned = AssignedPod(pod.metadata.uid, pod.key, node, assumed=True)
    return Bind(PodInfo(pod, {}), assigned, {names.ASSIGNMENT: annotation}, {})


async def test_node_and_assignment_are_written_in_one_request(client: Client) -> None:
    """The pod carries both, and keeps what it carried before."""
    pod = await _create(client)
    patch = {"metadata": {"annotations": {"own": "kept"}}}
    await client.request("PATCH", f"{PODS}/p", msgspec.json.encode(patch), MERGE_PATCH)
    assert (await bind(client, _decision(pod))).kind == "bound"
    bound = await _get(client)
    assert (bound.spec.node_name, bound.annotations) == ("n1", {"own": "kept", names.ASSIGNMENT: "ours"})


async def test_the_binding_names_pod_uid_and_node(client: Client) -> None:
    """It is protobuf, which devcluster reads by the field numbers of Kubernetes' own files."""
    pod = await _create(client)
    assert protobuf.decode(binding(_decision(pod))) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": pod.metadata.uid,
            "annotations": {names.ASSIGNMENT: "ours"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


@pytest.mark.parametrize(
    ("kind", "code", "times"),
    [
        ("answer", 500, 2),
        ("page", 404, 2),
        ("answer", 503, 1),
        ("answer", 429, 1),
        ("drop_before", 0, 2),
        ("drop_after", 0, 1),
    ],
)
async def test_an_unknown_outcome_is_repeated_until_it_is_known(
    kind: FaultKind, code: int, times: int, client: Client, server: ApiServer
) -> None:
    """Carried out or not, the identical Binding is sent again; one that was carried out is found to be ours."""
    pod = await _create(client)
    server.faults.plan(Fault("POST", "/binding$", kind, times=times, code=code))
    assert (await bind(client, _decision(pod))).kind == "bound"
    assert (await _get(client)).spec.node_name == "n1"


async def test_a_read_back_that_is_refused_is_repeated(client: Client, server: ApiServer) -> None:
    """A 409 of unknown meaning, and then no permission to read: the outcome waits until the pod can be read."""
    pod = await _create(client)
    server.faults.plan(Fault("POST", "/binding$", "answer", times=1, code=409))
    server.faults.plan(Fault("GET", "pods/p$", "answer", times=2, code=403))
    assert (await bind(client, _decision(pod))).kind == "changed"


HALF_PODS = [
    b"{}",
    b'{"kind":"Pod","apiVersion":"v1","metadata":{}}',
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":404,"reason":"NotFound"}',
    b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}',
]


@pytest.mark.parametrize("body", HALF_PODS)
async def test_a_read_back_that_is_not_whole_is_repeated(body: bytes, client: Client, server: ApiServer) -> None:
    """It would be a pod without a node, whose VFs are given to another pod."""
    pod = await _create(client)
    server.faults.plan(Fault("POST", "/binding$", "drop_after"))
    server.faults.plan(Fault("GET", "pods/p$", "body", times=2, code=200, body=body))
    assert (await bind(client, _decision(pod))).kind == "bound"


async def test_a_binding_whose_answer_is_not_whole_is_sent_again(client: Client, server: ApiServer) -> None:
    """Nothing was written, but the code is 201: the pod would count as bound for ever."""
    pod = await _create(client)
    server.faults.plan(Fault("POST", "/binding$", "body", times=2, code=201, body=b"{}"))
    assert (await bind(client, _decision(pod))).kind == "bound"
    assert (await _get(client)).spec.node_name == "n1"


async def test_a_404_page_of_a_proxy_does_not_mean_that_the_pod_is_gone(client: Client, server: ApiServer) -> None:
    """The answer of a successful Binding is lost, and a proxy answers the read-back with 404."""
    pod = await _create(client)
    server.faults.plan(Fault("POST", "/binding$", "drop_after"))
    server.faults.plan(Fault("GET", "pods/p$", "page", times=2, code=404))
    assert (await bind(client, _decision(pod))).kind == "bound"


async def test_a_timeout_after_the_write_is_our_bind(client: Client, server: ApiServer) -> None:
    """The answer comes after the timeout."""
    pod = await _create(client)
    server.faults.plan(Fault("POST", "/binding$", "delay", delay_s=3.0))
    assert (await bind(client, _decision(pod))).kind == "bound"


async def test_a_pod_bound_by_another_is_taken(client: Client) -> None:
    """The same node does not make it ours: the assignment must be there."""
    pod = await _create(client)
    assert (await bind(client, _decision(pod, annotation="theirs"))).kind == "bound"
    assert (await bind(client, _decision(pod))).kind == "taken"
    assert (await bind(client, _decision(pod, node="n2", annotation="theirs"))).kind == "taken"


async def test_a_pod_that_is_gone_after_a_lost_answer_counts_as_gone(client: Client, server: ApiServer) -> None:
    """If the read-back finds no pod there is nothing to hold."""
    pod = await _create(client)
    server.faults.plan(Fault("POST", "/binding$", "drop_before"))
    task = asyncio.create_task(bind(client, _decision(pod)))
    await client.request("DELETE", f"{PODS}/p")
    assert (await task).kind == "gone"


async def test_a_recreated_pod_of_the_same_name_is_not_bound(client: Client) -> None:
    """The uid in the Binding is a precondition."""
    old = await _create(client)
    await client.request("DELETE", f"{PODS}/p")
    await _create(client)
    assert (await bind(client, _decision(old))).kind == "changed"
    assert (await _get(client)).spec.node_name is None


async def test_a_gated_pod_is_not_bound(client: Client) -> None:
    """A gate means that the pod must wait."""
    pod = await _create(client, schedulingGates=[{"name": "wait"}])
    assert (await bind(client, _decision(pod))).kind == "gated"


async def test_a_pod_being_deleted_is_not_bound(client: Client) -> None:
    """A finalizer keeps it, but it is being deleted."""
    pod = await _create(client)
    patch = {"metadata": {"finalizers": ["example.org/hold"]}}
    await client.request("PATCH", f"{PODS}/p", msgspec.json.encode(patch), MERGE_PATCH)
    await client.request("DELETE", f"{PODS}/p")
    assert (await bind(client, _decision(pod))).kind == "deleting"


# aiohttp warns about bodies over 1 MiB; ours never come near.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_binding_too_large_for_the_api_server_is_refused(client: Client) -> None:
    """413, and etcd's limit wrapped in a 409: neither is a conflict, and neither is repeated."""
    pod = await _create(client)
    for size in (3_200_000, 2_097_152):
        assert (await bind(client, _decision(pod, annotation="x" * size))).kind == "refused"


async def test_of_eight_concurrent_binds_of_one_pod_one_succeeds(client: Client) -> None:
    """Each learns the outcome; the pod carries the winner's assignment and no other's."""
    pod = await _create(client)
    decisions = [_decision(pod, node=f"n{number % 2}", annotation=f"of {number}") for number in range(8)]
    outcomes = await asyncio.gather(*(bind(client, decision) for decision in decisions))
    assert sorted(one.kind for one in outcomes) == ["bound", *["taken"] * 7]
    (winner,) = [decision for decision, one in zip(decisions, outcomes, strict=True) if one.kind == "bound"]
    bound = await _get(client)
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


def _shown(pod: Pod, assignment: str = "") -> bytes:
    """Return a pod as the API server has it: waiting, or with an assignment bound to n1."""
    metadata: dict[str, Any] = {"name": pod.metadata.name, "uid": pod.metadata.uid, "resourceVersion": "7"}
    if not assignment:
        return msgspec.json.encode({"kind": "Pod", "metadata": metadata})
    metadata |= {"annotations": {names.ASSIGNMENT: assignment}}
    return msgspec.json.encode({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n1"}})


async def test_a_refusal_counts_only_once_no_earlier_copy_can_still_arrive(
    make_pod: Callable[..., Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is lost, the repetition refused, and then the first one arrives: the pod is ours."""
    monkeypatch.setattr("scheduler.server.writes.ON_ITS_WAY_S", 0.01)
    pod = make_pod()
    decision = _decision(pod)
    seen, unseen = _shown(pod, assignment="ours"), _shown(pod)
    lost, forbidden = failure(500, b"{}"), failure(403, b"{}")
    assert (await bind(cast(Client, _Scripted(lost, forbidden, seen)), decision)).kind == "bound"
    assert (await bind(cast(Client, _Scripted(lost, forbidden, unseen)), decision)).kind == "forbidden"
    assert (await bind(cast(Client, _Scripted(forbidden)), decision)).kind == "forbidden"


async def test_a_webhook_that_fails_denies_the_bind_and_leaves_nothing_behind(
    client: Client, server: ApiServer
) -> None:
    """Admission comes before storage: there is no earlier copy, so nobody waits and reads the pod back."""
    pod = await _create(client)
    server.faults.plan(webhook_fails("POST", "/binding$"))
    server.faults.plan(Fault("GET", "pods/p$", "drop_before", times=1000))
    outcome = await bind(client, _decision(pod))
    assert outcome.kind == "denied"
    assert 'failed calling webhook "hook.example.com"' in outcome.reason


async def test_a_denial_counts_only_once_no_earlier_copy_can_still_arrive(
    make_pod: Callable[..., Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is lost, the repetition denied, and then the first one arrives: the pod is ours."""
    monkeypatch.setattr("scheduler.server.writes.ON_ITS_WAY_S", 0.01)
    pod = make_pod()
    decision = _decision(pod)
    seen, unseen = _shown(pod, assignment="ours"), _shown(pod)
    message = 'admission webhook "w.example.com" denied the request: no'
    lost, denied = failure(500, b"{}"), failure(400, msgspec.json.encode({"kind": "Status", "message": message}))
    assert (await bind(cast(Client, _Scripted(lost, denied, seen)), decision)).kind == "bound"
    assert (await bind(cast(Client, _Scripted(lost, denied, unseen)), decision)).kind == "denied"
    assert (await bind(cast(Client, _Scripted(denied)), decision)).kind == "denied"


async def test_a_webhook_that_takes_longer_than_the_first_try_is_waited_for(client: Client, server: ApiServer) -> None:
    """The first copy is given up after the client's timeout of 2 s, the second one waits for its answer."""
    pod = await _create(client)
    server.faults.plan(webhook_fails("POST", "/binding$", times=2, delay_s=2.5))
    assert (await bind(client, _decision(pod))).kind == "denied"
