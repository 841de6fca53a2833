"""How many pods of a Job have succeeded is followed where Jobs may be listed."""

import asyncio

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.kube.access import Access
from mooring.kube.client import Client
from scheduler.kube.group_membership import GroupKey
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.state.machine import Machine
from tests.support.polling import until

_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_KEY = GroupKey("annotation", "default", "train")


async def _create_job(client: Client) -> str:
    """Create a Job with a pod that is a member of a group; return its uid."""
    made = await client.request("POST", _JOBS, msgspec.json.encode({"metadata": {"name": "train"}}))
    uid: str = msgspec.json.decode(made)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    annotations = {names.GROUP: '{"name":"train","min":4}'}
    pod = {
        "metadata": {"name": "rank", "annotations": annotations, "ownerReferences": [owner]},
        "spec": {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}]},
    }
    await client.request("POST", "/api/v1/namespaces/default/pods", msgspec.json.encode(pod))
    return uid


@pytest.mark.parametrize("is_forbidden", [False, True])
async def test_jobs_are_followed_and_without_the_right_there_are_none(is_forbidden: bool) -> None:
    """The scheduler is ready in both cases."""
    async with ApiServer() as server, Client(Access(server.url), timeout_s=2.0) as client:
        if is_forbidden:
            server.faults.plan(Fault("GET", "/apis/batch/v1/jobs", "answer", times=1000, code=403))
        uid = await _create_job(client)
        succeeded = msgspec.json.encode({"status": {"succeeded": 3}})
        await client.request("PATCH", f"{_JOBS}/train/status", succeeded, "application/merge-patch+json")
        machine = Machine("mooring")

        def count() -> int:
            members = machine.group_cache.get(_KEY)
            return members.count_for({uid}) if members is not None else -1

        loop = Loop(machine, ApiClients(client, client), ReportWriter(client, "mooring"), lambda: 0.0)
        running = asyncio.create_task(loop.run())
        async with asyncio.timeout(30):
            await loop.reflectors.ready.wait()
        await until(lambda: count() == (0 if is_forbidden else 3))
        await client.request("DELETE", f"{_JOBS}/train")
        await until(lambda: count() == 0)
        loop.stop()
        await running
