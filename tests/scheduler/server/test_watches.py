"""What is followed, in which order it is taken in, and kinds that are served from later on, or never."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from devcluster.apiserver.http.faults import Fault, FaultKind
from mooring import names
from mooring.kube.events import Changed, Identity, Removed, Synced
from mooring.kube.watch import Decoder, read_line
from scheduler.kube.group import GroupKey, Naming
from scheduler.kube.objects import Node, Pod
from scheduler.kube.workload_objects import CoschedulingPodGroup, PodGroup
from scheduler.server import watches
from scheduler.server.watches import OPTIONAL, EndOfList, Inbox, Message, WatchEvent
from tests.scheduler.server.cluster import Cluster, own_server_only
from tests.scheduler.server.stage import Stage
from tests.support.polling import until

GROUP = "scheduling.k8s.io"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def _message(token: str) -> Message:
    """Return a message: "a1" is version 1 of node a or pod p, "-a" a removal, "*" a list of nodes, "$" a list's end."""
    if token == "$":
        return EndOfList(Pod, 1)
    if token == "*":
        return WatchEvent(Node, Synced[Any](()))
    if token[0] == "-":
        return WatchEvent(Node, Removed(Identity(token[1:])))
    kind = Pod if token[0] == "p" else Node
    return WatchEvent(kind, Changed[Any](Identity(token[0], resource_version=token[1:]), token))


@pytest.mark.parametrize(
    ("received", "taken"),
    [
        pytest.param("a1 a2 b1 p1 a3", "a3 b1 p1", id="of a node's changes the newest, in the place of the first"),
        pytest.param("a1 -a a2 * a1 a2", "a1 -a a2 * a2", id="no change before an earlier removal or list"),
        # What a change requeues depends on the one before.
        pytest.param("p1 p2 p3 $", "p1 p2 p3 $", id="all changes of pods"),
    ],
)
def test_messages_are_taken_in_order_and_of_a_nodes_changes_only_the_newest(received: str, taken: str) -> None:
    inbox = Inbox()
    # What was taken is not replaced any more.
    for _ in range(2):
        for token in received.split():
            inbox.put(_message(token))
        for token in taken.split():
            assert inbox.take() == _message(token)
        assert not inbox
    inbox.put(_message("a1"))
    inbox.clear()
    assert not inbox


def test_a_node_of_nothing_but_images_takes_a_moment() -> None:
    """Less than the standard library needs for such a list, of which it makes half a million objects."""
    document = {"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}, "status": {"images": [{}] * 500_000}}
    text = json.dumps({"type": "MODIFIED", "object": document}).encode()
    ours, standard = (
        min(_seconds(act) for _ in range(3))
        for act in (lambda: read_line(text, Decoder(Node)), lambda: json.loads(text))
    )
    assert ours < standard


def _seconds(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began


async def _create_pod_group(cluster: Cluster, api: str, name: str = "train") -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "minMember": 3}
    body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    await cluster.call("POST", f"/apis/{api}/namespaces/default/podgroups", body)


@own_server_only
@pytest.mark.parametrize(
    ("api", "naming", "code", "kind"),
    [
        (f"{GROUP}/v1alpha2", "PodGroup", 403, "page"),
        (f"{GROUP}/v1beta1", "PodGroup", 404, "page"),
        (f"{GROUP}/v1beta1", "PodGroup", 403, "answer"),
        ("scheduling.x-k8s.io/v1alpha1", "coscheduling", 404, "answer"),
    ],
)
async def test_pod_groups_are_in_the_cache_from_when_and_as_long_as_their_api_is_served(
    api: str, naming: Naming, code: int, kind: FaultKind, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In either version of the cluster's own, and scheduler-plugins'; nothing waits for an API that is not served.

    They stay while it is not served for a moment: members of a group that goes as a whole would be preempted one by one
    meanwhile. They go with a custom resource definition that is deleted.
    """

    def is_cached(name: str = "train") -> bool:
        return stage.machine.group_cache.pod_groups.get(GroupKey(naming, "default", name)).group is not None

    monkeypatch.setattr(watches, "_LOOK_S", 0.05)
    monkeypatch.setattr(watches, "_MOMENT_S", 0.05)
    catalog = stage.server.cluster.catalog
    catalog.forget(GROUP, "v1beta1", "podgroups")
    async with stage.run():
        assert not is_cached()
        await _create_pod_group(stage, api)
        await until(is_cached)
        monkeypatch.setattr(watches, "_LOOK_S", 60.0)
        paths = OPTIONAL[PodGroup if naming == "PodGroup" else CoschedulingPodGroup]
        stage.plan(*(Fault("GET", path, kind, times=3, code=code) for path in paths))
        stage.server.cut_watches()
        await until(lambda: not stage.server.faults.planned)
        assert is_cached()
        await _create_pod_group(stage, api, "another")
        await until(lambda: is_cached("another"))
        assert is_cached()
        group, version = api.split("/")
        catalog.forget(group, version, "podgroups")
        stage.server.cut_watches()
        await until(lambda: not is_cached())


@own_server_only
@pytest.mark.parametrize("is_forbidden", [False, True])
async def test_jobs_are_followed_where_they_may_be_listed(stage: Stage, is_forbidden: bool) -> None:
    """The scheduler is ready in both cases."""
    if is_forbidden:
        stage.plan(Fault("GET", "/apis/batch/v1/jobs", "answer", times=1000, code=403))
    uid = (await stage.call("POST", JOBS, {"metadata": {"name": "train"}}))["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    group = {names.GROUP: '{"name":"train","min":4}'}
    await stage.add_pod("rank", annotations=group, metadata={"ownerReferences": [owner]})
    await stage.patch(f"{JOBS}/train/status", status={"succeeded": 3})

    def count() -> int:
        members = stage.machine.group_cache.get(GroupKey("annotation", "default", "train"))
        return members.count_for({uid}) if members is not None else -1

    async with stage.run():
        await until(lambda: count() == (0 if is_forbidden else 3))
        await stage.call("DELETE", f"{JOBS}/train")
        await until(lambda: count() == 0)


async def test_a_kind_that_may_not_be_listed_is_named_with_the_permission(stage: Stage) -> None:
    """The scheduler is not ready without it: a pod's volumes are never silently ignored."""
    for plural in ("persistentvolumes", "csinodes"):
        stage.plan(Fault("GET", f"/{plural}", "answer", times=1000, code=403))
    missing = (
        "not listed yet: PersistentVolume (needs permission to list and watch persistentvolumes), "
        "CSINode (needs permission to list and watch csinodes.storage.k8s.io)"
    )
    async with stage.run(until_listed=False):
        await until(lambda: stage.loop.reflectors.not_ready() == missing)
