"""The extender over HTTP, with a loop at work beside it: who answers, what is written, and invalid requests."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring.annotations.assignment import verified_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.client import Client
from scheduler.kube.objects import Node
from scheduler.server.http import extender_handlers
from scheduler.server.http import extender_server as servers
from scheduler.server.http.extender_handlers import RIT_BLIND, RIT_FULL, RIT_INVALID
from tests.scheduler.server.http.extender_stage import Stage
from tests.support.polling import eventually

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
FULL = "not enough free RDMA VFs"


@pytest.fixture
async def stage(server: ApiServer, client: Client, make_node: MakeNode, make_pf: MakePf) -> Stage:
    """Give a cluster of one node with one VF."""
    stage = Stage(server, client)
    await stage.add_node("n1", make_pf(vfs=1), make=make_node)
    return stage


async def test_a_standby_answers_503(stage: Stage) -> None:
    """To every verb and every body; once it leads and has listed everything, it answers."""
    async with stage.run(leads=False):
        for verb in ("filter", "prioritize", "preempt", "bind", "rdma_scheduling"):
            assert await stage.ask(verb, {}) == (503, "this scheduler does not lead")
        stage.loop.lead()
        await eventually(lambda: stage._answers())
        assert (await stage.ask("filter", {}))[0] == 200


async def test_an_invalid_request_is_answered_with_its_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the protocol's field, where it has one; one that is too large is not read."""
    monkeypatch.setattr(servers, "_LARGEST", 1000)
    async with stage.run():
        for verb in ("filter", "bind", "rdma_scheduling"):
            status, answer = await stage.ask(verb, b"{")
            assert (status, answer["Error"].split(":")[0][:16]) == (200, "request is not a")
        for verb in ("prioritize", "preempt"):
            status, answer = await stage.ask(verb, b"{")
            assert (status, answer[:16]) == (400, "request is not a")
        assert (await stage.ask("filter", b" " * 1001))[0] == 413


async def test_a_bind_writes_node_and_assignment_at_once(stage: Stage) -> None:
    """A second request, as after a lost answer, gets the same answer; two pods never get one VF."""
    async with stage.run():
        first, second = await stage.add_pod("a"), await stage.add_pod("b")
        assert await stage.refused("filter", second, "n1") == {}
        errors = await asyncio.gather(stage.bind(first), stage.bind(second))
        assert sorted(errors) == ["", f"node 'n1': {FULL}"]
        winner, loser = (first, second) if not errors[0] else (second, first)
        assert await stage.bind(winner) == ""
        assert "is bound to node 'n1'" in await stage.bind(winner, "n2")
        bound = await stage.pod(winner.metadata.name)
        assert bound.spec.node_name == "n1"
        given = verified_assignment(bound.annotations, bound.metadata.uid, "n1")
        assert given is not None
        assert [vf.vf for vf in given.vfs] == [0]
        assert await stage.refused("filter", loser, "n1", "n9") == {
            "n1": FULL,
            "n9": "node(s) were not in Mooring's cache yet",
        }
        await stage.delete(winner.metadata.name)

        async def freed() -> bool:
            return stage.is_free(winner.metadata.uid)

        await eventually(freed)
        assert await stage.bind(loser) == ""


async def test_two_requests_to_bind_a_pod_at_once_get_one_answer(stage: Stage) -> None:
    """Both read the pod before either reserves its VFs."""
    async with stage.run():
        pod = await stage.add_pod("a")
        assert await asyncio.gather(*(stage.bind(pod) for _ in range(3))) == ["", "", ""]


async def test_a_pod_of_another_uid_is_not_bound(stage: Stage) -> None:
    """The name is used again; nothing stays reserved."""
    async with stage.run():
        old = await stage.add_pod("a")
        await stage.delete("a")
        assert "404" in await stage.bind(old)
        new = await stage.add_pod("a")
        assert f"now has the uid {new.metadata.uid!r}" in await stage.bind(old)
        assert stage.is_free(old.metadata.uid)
        assert await stage.bind(new) == ""


async def test_a_refused_binding_frees_its_vfs(stage: Stage, server: ApiServer) -> None:
    """kube-scheduler gets the API server's message."""
    async with stage.run():
        pod = await stage.add_pod("a")
        server.faults.plan(Fault("POST", "/a/binding", "answer", code=403))
        assert (await stage.bind(pod)).startswith("forbidden: ")
        assert stage.is_free(pod.metadata.uid)
        assert await stage.bind(pod) == ""


async def test_an_unknown_outcome_is_answered_in_time_and_resolved_later(
    stage: Stage, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The VF stays reserved; a second request waits for the same bind, and the pod may not go elsewhere."""
    monkeypatch.setattr(extender_handlers, "_ANSWER_S", 0.5)
    async with stage.run():
        pod, other = await stage.add_pod("a"), await stage.add_pod("b")
        server.faults.plan(Fault("POST", "/a/binding", "drop_before", times=6))
        assert "the reservation is kept" in await stage.bind(pod)
        assert not stage.is_free(pod.metadata.uid)
        assert await stage.bind(other) == f"node 'n1': {FULL}"
        assert await stage.bind(pod, "n2") == "pod default/a is being bound to node 'n1'"
        assert await stage.refused("filter", pod, "n1", "n2") == {"n2": "the pod is being bound to node 'n1'"}

        async def is_bound() -> bool:
            return await stage.bind(pod) == ""

        await eventually(is_bound)
        assert (await stage.pod("a")).spec.node_name == "n1"


async def test_a_lease_that_is_lost_before_the_write_is_an_error(stage: Stage) -> None:
    """Nothing is sent; the reservation stays until the lease is certain again or this scheduler ends."""
    async with stage.run():
        pod = await stage.add_pod("a")
        stage.holds_lease = False
        assert (await stage.bind(pod)).endswith("the reservation is kept")
        assert not stage.is_free(pod.metadata.uid)
        assert not (await stage.pod("a")).spec.node_name
        stage.holds_lease = True
        # kube-scheduler calls again, while the first request waits a random time before it is repeated.
        async with asyncio.timeout(90):
            while error := await stage.bind(pod):
                assert error.endswith("the reservation is kept")
        assert (await stage.pod("a")).spec.node_name


async def test_the_path_of_rit_k8s_rdma_answers_with_its_three_messages(stage: Stage, make_node: MakeNode) -> None:
    """Whole nodes were sent there, and came back."""
    await stage.add_node("bare", make=make_node)
    async with stage.run():
        await stage.bind(await stage.add_pod("a"))
        pod, wrong = await stage.add_pod("b"), await stage.add_pod("c", "no JSON")
        assert await stage.refused("rdma_scheduling", pod, "n1", "bare") == {"n1": RIT_FULL, "bare": RIT_BLIND}
        assert await stage.refused("rdma_scheduling", wrong, "n1") == {"n1": RIT_INVALID}
        assert "mooring.dev/interfaces" in (await stage.refused("filter", wrong, "n1"))["n1"]
        nodes = {"items": [{"metadata": {"name": name}, "strange": name} for name in ("n1", "bare")]}
        empty = await stage.add_pod("d", "[]")
        _, answer = await stage.ask("rdma_scheduling", {"pod": msgspec.to_builtins(empty), "nodes": nodes})
        assert (answer["Nodes"], answer["NodeNames"]) == (nodes, None)


async def test_scores_and_victims_are_given(stage: Stage) -> None:
    """A malformed pod gets neither."""
    async with stage.run():
        pod, wrong = await stage.add_pod("a"), await stage.add_pod("b", "no JSON")
        for one, score, kept in ((pod, 10, {"n1"}), (wrong, 0, set[str]())):
            sent = msgspec.to_builtins(one)
            assert await stage.ask("prioritize", {"Pod": sent, "NodeNames": ["n1"]}) == (
                200,
                [{"Host": "n1", "Score": score}],
            )
            victims = {node: {"Pods": [{"UID": "v"}], "NumPDBViolations": 0} for node in ("n1", "n9")}
            _, answer = await stage.ask("preempt", {"Pod": sent, "NodeNameToMetaVictims": victims})
            assert answer["NodeNameToMetaVictims"].keys() == kept


async def test_a_long_list_of_nodes_delays_no_other_request(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are judged in slices: others get their turn before the answer is there."""
    monkeypatch.setattr(extender_handlers, "_SLICE_S", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with stage.run():
        pod = await stage.add_pod("a")
        counting = asyncio.create_task(count())
        await stage.refused("filter", pod, *(f"n{index}" for index in range(2000)))
        counting.cancel()
    assert turns > 2000
