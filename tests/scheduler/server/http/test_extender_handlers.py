"""The extender over HTTP, with a loop at work beside it: who answers, what is written, and invalid requests."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault
from scheduler.server.http import extender_handlers
from scheduler.server.http import extender_server as servers
from scheduler.server.http.extender_handlers import RIT_BLIND, RIT_FULL, RIT_INVALID
from tests.scheduler.server.cluster import beside, given_vfs, when
from tests.scheduler.server.stage import ExtenderStage
from tests.support.polling import until

FULL = "not enough free RDMA VFs"
KEPT = "the reservation is kept"


@pytest.fixture
async def stage(extender: ExtenderStage) -> AsyncIterator[ExtenderStage]:
    """Give a leader that answers, on a cluster of one node with one VF and another with none."""
    await extender.add_rdma_node("n1", vfs=1)
    await extender.add_rdma_node("bare")
    async with extender.answering():
        yield extender


async def test_a_standby_answers_503(extender: ExtenderStage) -> None:
    """To every verb and every body; once it leads and has listed everything, it answers."""
    async with extender.answering(leads=False):
        for verb in ("filter", "prioritize", "preempt", "bind", "rdma_scheduling"):
            assert await extender.ask(verb, {}) == (503, "this scheduler does not lead")
        await extender.lead_now()
        assert (await extender.ask("filter", {}))[0] == 200


async def test_an_invalid_request_is_answered_with_its_error(
    stage: ExtenderStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the protocol's field, where it has one; one that is too large is not read."""
    monkeypatch.setattr(servers, "_LARGEST", 1000)
    for verb in ("filter", "bind", "rdma_scheduling", "prioritize", "preempt"):
        status, answer = await stage.ask(verb, b"{")
        has_field = isinstance(answer, dict)
        assert (status, has_field) == ((400, False) if verb in ("prioritize", "preempt") else (200, True))
        assert (answer["Error"] if has_field else answer).startswith("request is not a")
    assert (await stage.ask("filter", b" " * 1001))[0] == 413


async def test_a_bind_writes_node_and_assignment_at_once(stage: ExtenderStage) -> None:
    """A second request, as after a lost answer, gets the same answer; two pods never get one VF."""
    first, second = await stage.request("a"), await stage.request("b")
    assert await stage.refused("filter", second, "n1") == {}
    errors = await asyncio.gather(stage.ask_bind(first), stage.ask_bind(second))
    assert sorted(errors) == ["", f"node 'n1': {FULL}"]
    winner, loser = (first, second) if not errors[0] else (second, first)
    assert await stage.ask_bind(winner) == ""
    assert "is bound to node 'n1'" in await stage.ask_bind(winner, "n2")
    bound = await stage.pod(winner.metadata.name)
    assert (bound.spec.node_name, given_vfs(bound)) == ("n1", [("pf0", 0)])
    unknown = "node(s) were not in Mooring's cache yet"
    assert await stage.refused("filter", loser, "n1", "n9") == {"n1": FULL, "n9": unknown}
    await stage.delete(winner.metadata.name)
    await until(lambda: stage.is_free(winner.metadata.uid))
    # All requests read the pod before any reserves its VFs.
    assert await asyncio.gather(*(stage.ask_bind(loser) for _ in range(3))) == ["", "", ""]


async def test_a_pod_of_another_uid_is_not_bound(stage: ExtenderStage) -> None:
    """The name is used again; nothing stays reserved."""
    old = await stage.request("a")
    await stage.delete("a")
    assert "404" in await stage.ask_bind(old)
    new = await stage.request("a")
    assert f"now has the uid {new.metadata.uid!r}" in await stage.ask_bind(old)
    assert stage.is_free(old.metadata.uid)
    assert await stage.ask_bind(new) == ""


async def test_a_refused_binding_frees_its_vfs(stage: ExtenderStage) -> None:
    """kube-scheduler gets the API server's message."""
    pod = await stage.request("a")
    stage.plan(Fault("POST", "/a/binding", "answer", code=403))
    assert (await stage.ask_bind(pod)).startswith("forbidden: ")
    assert stage.is_free(pod.metadata.uid)
    assert await stage.ask_bind(pod) == ""


async def test_an_unknown_outcome_is_answered_in_time(stage: ExtenderStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The VF stays reserved; a second request waits for the same bind, and the pod may not go elsewhere."""
    monkeypatch.setattr(extender_handlers, "_ANSWER_S", 0.5)
    pod, other = await stage.request("a"), await stage.request("b")
    stage.plan(Fault("POST", "/a/binding", "drop_before", times=6))
    assert KEPT in await stage.ask_bind(pod)
    assert not stage.is_free(pod.metadata.uid)
    assert await stage.ask_bind(other) == f"node 'n1': {FULL}"
    assert await stage.ask_bind(pod, "n2") == "pod default/a is being bound to node 'n1'"
    assert await stage.refused("filter", pod, "n1", "n2") == {"n2": "the pod is being bound to node 'n1'"}
    await when(lambda: stage.ask_bind(pod), lambda error: error == "")
    assert (await stage.pod("a")).spec.node_name == "n1"


async def test_a_lease_that_is_lost_before_the_write_is_an_error(stage: ExtenderStage) -> None:
    """Nothing is sent; the reservation stays until the lease is certain again or this scheduler ends."""
    pod = await stage.request("a")
    stage.leads = False
    assert (await stage.ask_bind(pod)).endswith(KEPT)
    assert not stage.is_free(pod.metadata.uid)
    assert not await stage.is_bound("a")
    stage.leads = True
    # kube-scheduler calls again, while the first request waits a random time before it is repeated.
    async with asyncio.timeout(90):
        while error := await stage.ask_bind(pod):
            assert error.endswith(KEPT)
    assert await stage.is_bound("a")


async def test_the_path_of_rit_k8s_rdma_answers_with_its_three_messages(stage: ExtenderStage) -> None:
    """Whole nodes were sent there, and came back."""
    await stage.ask_bind(await stage.request("a"))
    pod, wrong = await stage.request("b"), await stage.request("c", "no JSON")
    assert await stage.refused("rdma_scheduling", pod, "n1", "bare") == {"n1": RIT_FULL, "bare": RIT_BLIND}
    assert await stage.refused("rdma_scheduling", wrong, "n1") == {"n1": RIT_INVALID}
    assert "mooring.dev/interfaces" in (await stage.refused("filter", wrong, "n1"))["n1"]
    nodes = {"items": [{"metadata": {"name": name}, "strange": name} for name in ("n1", "bare")]}
    empty = await stage.request("d", "[]")
    _, answer = await stage.ask("rdma_scheduling", {"pod": msgspec.to_builtins(empty), "nodes": nodes})
    assert (answer["Nodes"], answer["NodeNames"]) == (nodes, None)


async def test_scores_and_victims_are_given(stage: ExtenderStage) -> None:
    """A malformed pod gets neither."""
    pod, wrong = await stage.request("a"), await stage.request("b", "no JSON")
    for one, score, kept in ((pod, 10, {"n1"}), (wrong, 0, set[str]())):
        sent = {"Pod": msgspec.to_builtins(one), "NodeNames": ["n1"]}
        assert await stage.ask("prioritize", sent) == (200, [{"Host": "n1", "Score": score}])
        assert await stage.preempted(one, {"n1": "v", "n9": "v"}) == kept


async def test_a_long_list_delays_no_other_request(stage: ExtenderStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are judged in slices: others get their turn before the answer is there."""
    monkeypatch.setattr(extender_handlers, "_SLICE_S", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    pod = await stage.request("a")
    async with beside(count()):
        await stage.refused("filter", pod, *(f"n{index}" for index in range(2000)))
    assert turns > 2000
