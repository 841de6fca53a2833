"""A node with the stand-in, the fake runtime and the API server: pods run, end and leave nothing."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.runtime import mounts

Manifest = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.root
_SH = {"name": "main", "image": "busybox"}


async def test_the_node_is_registered_ready_and_untainted(cluster: Any) -> None:
    """Labels, capacity, boot id and Ready are there, the taint of new nodes is gone, and the lease is held."""

    async def registered() -> dict[str, Any] | None:
        nodes = json.loads(await cluster.client.request("GET", "/api/v1/nodes"))["items"]
        return next((node for node in nodes if not node["spec"].get("taints")), None)

    node = await cluster.eventually(registered)
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert node["status"]["nodeInfo"]["bootID"] == "boot"
    assert node["status"]["allocatable"]["pods"] == "110"
    assert _of_type(node["status"]["conditions"], "Ready")["status"] == "True"

    async def lease() -> dict[str, Any] | None:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        leases = json.loads(await cluster.client.request("GET", path))["items"]
        return leases[0] if leases else None

    assert (await cluster.eventually(lease))["spec"]["holderIdentity"] == "n1"


def _of_type(conditions: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(condition for condition in conditions if condition["type"] == kind)


async def test_twenty_pods_run_and_are_deleted_gracefully(cluster: Any, make_manifest: Manifest) -> None:
    """All become Running and Ready with an address; after deletion the runtime has none of them left."""
    names = [f"p{number}" for number in range(20)]
    await asyncio.gather(*(cluster.create(make_manifest(name)) for name in names))
    pods = await asyncio.gather(*(cluster.reaches(name, "Running") for name in names))
    assert {pod["status"]["podIP"] for pod in pods} == {"10.9.8.7"}
    assert all(_of_type(pod["status"]["conditions"], "Ready")["status"] == "True" for pod in pods)
    await asyncio.gather(*(cluster.delete(name) for name in names))
    await asyncio.gather(*(cluster.is_gone(name) for name in names))
    assert sorted(set(cluster.calls())) == ["ADD netns", "DEL ", "DEL netns"]
    assert cluster.calls().count("DEL netns") == 20
    assert cluster.calls().count("DEL ") >= 20


async def test_a_force_deleted_pod_is_cleaned_up(cluster: Any, make_manifest: Manifest) -> None:
    """The API server forgets it at once; its sandbox and its network go after it."""
    await cluster.create(make_manifest("p1"))
    await cluster.reaches("p1", "Running")
    await cluster.delete("p1", gracePeriodSeconds=0)
    assert await cluster.get("p1") is None
    await cluster.is_gone("p1")
    assert "DEL netns" in cluster.calls()


async def test_a_pod_deleted_while_its_kubelet_was_away_is_cleaned_up_at_its_start(
    cluster: Any, make_manifest: Manifest
) -> None:
    """A new kubelet adopts the pods that are still wanted and ends the sandboxes that have no owner."""
    for name in ("kept", "lost"):
        await cluster.create(make_manifest(name))
    before = await asyncio.gather(*(cluster.reaches(name, "Running") for name in ("kept", "lost")))
    await cluster.stop_kubelet()
    await cluster.delete("lost", gracePeriodSeconds=0)
    await cluster.start_kubelet()
    await cluster.is_gone("lost")
    kept = await cluster.reaches("kept", "Running")
    assert kept["status"]["containerStatuses"] == before[0]["status"]["containerStatuses"]


async def test_a_failing_sandbox_is_told_by_an_event_and_tried_again(cluster: Any, make_manifest: Manifest) -> None:
    """The event carries the runtime's message; once the plugin works again the pod runs."""
    cluster.behave('test "$CNI_COMMAND" != ADD || { echo \'{"code":11,"msg":"VF held","details":"by u2"}\'; exit 1; }')
    await cluster.create(make_manifest("p1"))
    event = (await cluster.tells("FailedCreatePodSandBox"))[0]
    assert event["message"].startswith("Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup")
    assert event["message"].endswith('plugin type="scripted" failed (add): VF held; by u2')
    waiting = (await cluster.get("p1"))["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "ContainerCreating"}
    cluster.behave("")
    await cluster.reaches("p1", "Running")


async def test_a_deletion_interrupts_a_sandbox_in_the_making(
    cluster: Any, make_manifest: Manifest, tmp_path: Path
) -> None:
    """The plugin is killed, DEL follows, and the pod is gone long before the deadline of RunPodSandbox."""
    cluster.behave('test "$CNI_COMMAND" != ADD || exec sleep 600')
    await cluster.create(make_manifest("p1"))
    await cluster.has_called("ADD netns")
    await cluster.delete("p1")
    await cluster.is_gone("p1")
    await cluster.has_called("DEL netns")

    async def has_no_namespace() -> bool:
        return mounts.mounts_below(tmp_path) == []

    # A sandbox in the making is not listed: `is_gone` does not wait for its end.
    await cluster.eventually(has_no_namespace)


async def test_a_failing_del_keeps_the_pod_until_it_heals(cluster: Any, make_manifest: Manifest) -> None:
    """The pod stays in the API, terminating, with an event; StopPodSandbox is repeated until it succeeds."""
    await cluster.create(make_manifest("p1"))
    await cluster.reaches("p1", "Running")
    cluster.behave('test "$CNI_COMMAND" != DEL || { echo \'{"code":101,"msg":"stuck"}\'; exit 1; }')
    await cluster.delete("p1")
    event = (await cluster.tells("FailedKillPod"))[0]
    assert "stuck" in event["message"]
    assert await cluster.get("p1") is not None
    cluster.behave("")
    await cluster.is_gone("p1")


async def test_a_missing_image_is_told_and_the_other_container_runs(cluster: Any, make_manifest: Manifest) -> None:
    """One container that cannot be created does not delay its neighbour."""
    good = {"name": "good", "image": "busybox", "command": ["sleep", "3600"]}
    await cluster.create(make_manifest("p1", containers=[{"name": "bad", "image": "example.org/none"}, good]))
    await cluster.tells("ErrImageNeverPull")

    async def statuses() -> list[dict[str, Any]] | None:
        bad, running = (await cluster.get("p1"))["status"]["containerStatuses"]
        return [bad, running] if running["ready"] else None

    bad, _ = await cluster.eventually(statuses)
    assert bad["state"]["waiting"]["reason"] == "ErrImageNeverPull"


@pytest.mark.parametrize(("script", "phase"), [("exit 0", "Succeeded"), ("exit 3", "Failed")])
async def test_a_pod_that_is_not_restarted_ends_with_its_containers(
    cluster: Any, make_manifest: Manifest, script: str, phase: str
) -> None:
    """The phase follows the exit status, and the network is given back although the pod stays in the API."""
    container = _SH | {"command": ["sh", "-c", script]}
    await cluster.create(make_manifest("p1", restartPolicy="Never", containers=[container]))
    await cluster.reaches("p1", phase)
    await cluster.has_called("DEL netns")
    await cluster.delete("p1")
    await cluster.is_gone("p1")


async def test_init_containers_run_one_after_the_other_first(cluster: Any, make_manifest: Manifest) -> None:
    """The app starts after each init container has ended with 0."""
    inits = [{"name": name, "image": "busybox", "command": ["sh", "-c", "exit 0"]} for name in ("one", "two")]
    await cluster.create(make_manifest("p1", initContainers=inits))
    status = (await cluster.reaches("p1", "Running"))["status"]
    ends = [one["state"]["terminated"]["exitCode"] for one in status["initContainerStatuses"]]
    assert ends == [0, 0]
    assert _of_type(status["conditions"], "Initialized")["status"] == "True"


async def test_an_annotation_edited_meanwhile_is_the_one_that_counts(cluster: Any, make_manifest: Manifest) -> None:
    """The downward API gives the container what was changed while the sandbox was being made."""
    cluster.behave('test "$CNI_COMMAND" != ADD || sleep 0.5')
    value = {"fieldRef": {"fieldPath": "metadata.annotations['about']"}}
    variables = [{"name": "ABOUT", "valueFrom": value}, {"name": "LITERAL", "value": "x"}]
    await cluster.create(make_manifest("p1", containers=[_SH | {"command": ["sleep", "3600"], "env": variables}]))
    await cluster.has_called("ADD netns")
    await cluster.annotate("p1", about="edited")
    await cluster.reaches("p1", "Running")
    assert await cluster.environment("p1") == {"ABOUT": "edited", "LITERAL": "x"}


async def test_a_cut_watch_and_a_compacted_history_lose_no_pod(cluster: Any, make_manifest: Manifest) -> None:
    """After 410 the kubelet lists again: what was deleted meanwhile is cleaned up, what is new runs."""
    await cluster.create(make_manifest("old"))
    await cluster.reaches("old", "Running")
    cluster.server.faults.plan(Fault("GET", "watch=true", "answer", times=1_000_000, code=503))
    cluster.server.cut_watches()
    await cluster.delete("old", gracePeriodSeconds=0)
    await cluster.create(make_manifest("new"))
    cluster.server.compact()
    cluster.server.faults.planned.clear()
    await cluster.is_gone("old")
    await cluster.reaches("new", "Running")
