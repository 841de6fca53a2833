"""RayCluster of KubeRay v1.7.0 (ray-project/kuberay): its calls are played.

Functions are those of ray-operator/controllers/ray/raycluster_controller.go, where no other file is named.
"""

from typing import Any

import pytest

from tests.scheduler.controllers.conftest import Stage
from tests.scheduler.controllers.player import controller, template

pytestmark = pytest.mark.apiserver
HEAD = "ray-head"


def _pod(name: str, group: dict[str, Any], **labels: str) -> dict[str, Any]:
    # buildHeadPod, buildWorkerPod; labelPod and DefaultWorkerPodTemplate in common/pod.go
    node_type = "head" if name == HEAD else "worker"
    own = {"ray.io/is-ray-node": "yes", "ray.io/cluster": "ray", "ray.io/node-type": node_type}
    own["ray.io/group"] = "headgroup" if name == HEAD else "workers"
    pod = template(group, own | {f"ray.io/{key.replace('_', '-')}": value for key, value in labels.items()})
    pod["metadata"] |= {"name": name, "ownerReferences": [controller("ray.io/v1", "RayCluster", "ray")]}
    return pod


async def test_head_and_workers_start_whole_and_failed_ones_are_replaced(stage: Stage) -> None:
    """One group by `name_from`, with the label ray.io/cluster."""
    group = {"name_from": "ray.io/cluster", "min": 4}
    first = [HEAD, *(f"ray-workers-worker-{end}" for end in ("aaaaa", "bbbbb", "ccccc"))]
    groups = stage.watch_groups(lambda _: "ray", 4)
    async with stage.start_whole(*first):
        # reconcilePods: the head, then each worker group
        await stage.create_pods(_pod(name, group) for name in first)

    # shouldDeletePod: the next reconcilePods creates a worker with another random name.
    await stage.end(first[1], phase="Failed")
    await stage.delete_ended()
    await stage.create_pods([_pod("ray-workers-worker-ddddd", group)])
    await stage.runs(HEAD, "ray-workers-worker-ddddd", *first[2:])
    # The head has the same name again.
    await stage.end(HEAD, phase="Failed")
    await stage.delete_ended()
    await stage.create_pods([_pod(HEAD, group)])
    await stage.runs(HEAD, "ray-workers-worker-ddddd", *first[2:])
    assert groups.starts == 1

    # reconcilePods of a cluster that is suspending: deleteAllPods
    await stage.delete("Pod", HEAD, "ray-workers-worker-ddddd", *first[2:])
    await stage.leaves_all_nodes_free()


async def test_a_replica_of_several_hosts_is_replaced_whole(stage: Stage) -> None:
    """A group for each replica by `name_from`: the new one waits for the room of the old one, and then starts whole."""
    label = "ray.io/worker-group-replica-name"
    group = {"name_from": label, "min": 2}
    groups = stage.watch_groups(lambda pod: str(pod["metadata"]["labels"][label]), 2)

    def replica(end: str, index: int) -> list[dict[str, Any]]:
        # createWorkerPodWithIndex; GenerateRayWorkerReplicaGroupName in utils/util.go
        more = {"worker_group_replica_name": f"workers-{end}", "worker_group_replica_index": str(index)}
        names = (f"ray-workers-worker-{end}{host}" for host in range(2))
        return [_pod(name, group, replica_host_index=name[-1], **more) for name in names]

    def names_of(pods: list[dict[str, Any]]) -> list[str]:
        return [pod["metadata"]["name"] for pod in pods]

    left, old, new = replica("aaaa", 0), replica("bbbb", 1), replica("cccc", 1)
    async with stage.one_node_taken():
        await stage.create_pods([*left, *old])
        await stage.until(lambda: groups.starts == 1, "one replica runs")
    await stage.runs(*names_of(left), *names_of(old))

    # reconcileMultiHostWorkerGroup deletes the failed pod's replica, and creates another one at once.
    failed, other = names_of(old)
    async with stage.slow_to_end(other):
        await stage.end(failed, phase="Failed")
        await stage.delete_ended()
        await stage.delete("Pod", other)
        await stage.create_pods(new)
        await stage.waits(*names_of(new), message="1 of 2 members fit")
    await stage.runs(*names_of(left), *names_of(new))
    assert groups.starts == 3
