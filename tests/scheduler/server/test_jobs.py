"""How many pods of a Job have succeeded is followed where Jobs may be listed."""

import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring import names
from scheduler.kube.group import GroupKey
from scheduler.state.machine import Machine
from tests.scheduler.server.cluster import Cluster, following
from tests.support.polling import until

_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_KEY = GroupKey("annotation", "default", "train")


@pytest.mark.parametrize("server", ["devcluster"], indirect=True)
@pytest.mark.parametrize("is_forbidden", [False, True])
async def test_jobs_are_followed_and_without_the_right_there_are_none(
    cluster: Cluster, server: ApiServer, machine: Machine, is_forbidden: bool
) -> None:
    """The scheduler is ready in both cases."""
    if is_forbidden:
        server.faults.plan(Fault("GET", "/apis/batch/v1/jobs", "answer", times=1000, code=403))
    uid = (await cluster.call("POST", _JOBS, {"metadata": {"name": "train"}}))["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    group = {names.GROUP: '{"name":"train","min":4}'}
    await cluster.add_pod("rank", annotations=group, metadata={"ownerReferences": [owner]})
    await cluster.patch(f"{_JOBS}/train/status", status={"succeeded": 3})

    def count() -> int:
        members = machine.group_cache.get(_KEY)
        return members.count_for({uid}) if members is not None else -1

    async with following(machine, cluster.client) as (loop, _):
        await until(loop.reflectors.ready.is_set)
        await until(lambda: count() == (0 if is_forbidden else 3))
        await cluster.call("DELETE", f"{_JOBS}/train")
        await until(lambda: count() == 0)
