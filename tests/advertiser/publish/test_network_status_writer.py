"""The advertiser as a process tells pods of its node what they were given, by two annotations."""

import json
from pathlib import Path
from typing import Any

import aiohttp

from advertiser.formats.network_status import DIGEST_KEY, KEY, digest
from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from tests.advertiser.held_pod import VF1, bind_pod, give
from tests.advertiser.program import advertising
from tests.support.polling import eventually

POD = "/api/v1/namespaces/default/pods/train"
MERGE = {"Content-Type": "application/merge-patch+json"}


async def pod(server: ApiServer) -> dict[str, Any]:
    async with aiohttp.ClientSession(server.url) as session, session.get(POD) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def annotations(server: ApiServer) -> dict[str, str]:
    return dict((await pod(server))["metadata"].get("annotations", {}))


async def annotate(server: ApiServer, values: dict[str, str | None]) -> None:
    async with aiohttp.ClientSession(server.url, headers=MERGE) as session:
        body = json.dumps({"metadata": {"annotations": values}})
        async with session.patch(POD, data=body) as answer:
            assert answer.status == 200


async def told(server: ApiServer, address: str) -> Any:
    """Return the status as soon as it has an address."""

    async def has_it() -> Any:
        found = json.loads((await annotations(server)).get(KEY, "[]"))
        return found if found and found[0].get("ips") == [address] else None

    return await eventually(has_it)


async def test_a_pod_is_told_what_it_was_given_and_again_by_its_next_sandbox(server: ApiServer, tmp_path: Path) -> None:
    """Name, address, MAC and devices; nothing is written at rest, nor when the program starts again."""
    uid = await bind_pod(server, tmp_path)
    async with advertising(tmp_path, "--network-status", "--resync", "0.2") as advertiser:
        give(tmp_path, uid, "10.0.0.2")
        (interface,) = await told(server, "10.0.0.2")
        assert interface["name"] == "rail0"
        assert interface["device-info"]["pci"] == {"pci-address": VF1, "rdma-device": "mlx5_3"}
        version = (await pod(server))["metadata"]["resourceVersion"]
        await advertiser.scanned()
        assert (await pod(server))["metadata"]["resourceVersion"] == version
    async with advertising(tmp_path, "--network-status", "--resync", "0.2") as advertiser:
        await advertiser.scanned()
        assert (await pod(server))["metadata"]["resourceVersion"] == version
        give(tmp_path, uid, "10.0.0.9", container="second")
        await told(server, "10.0.0.9")
    found = await annotations(server)
    assert found[DIGEST_KEY] == digest(found[KEY])


async def test_what_multus_has_written_stays(server: ApiServer, tmp_path: Path) -> None:
    """Before us, or in place of ours."""
    uid = await bind_pod(server, tmp_path)
    await annotate(server, {KEY: "multus"})
    async with advertising(tmp_path, "--network-status", "--resync", "0.2") as advertiser:
        give(tmp_path, uid, "10.0.0.2")
        await advertiser.scanned()
        assert (await annotations(server))[KEY] == "multus"
        await annotate(server, {KEY: None})
        give(tmp_path, uid, "10.0.0.3", container="second")
        await told(server, "10.0.0.3")
        await annotate(server, {KEY: "multus again"})
        give(tmp_path, uid, "10.0.0.4", container="third")
        await advertiser.scanned()
        assert (await annotations(server))[KEY] == "multus again"


async def test_a_write_that_was_overtaken_begins_again(server: ApiServer, tmp_path: Path) -> None:
    """The kubelet writes the pod's status at the same time; an answer may be lost as well."""
    uid = await bind_pod(server, tmp_path)
    path = "/pods/train/status$"
    server.faults.plan(Fault("PATCH", path, "drop_after"))
    server.faults.plan(Fault("PATCH", path, "answer", times=2, code=409))
    async with advertising(tmp_path, "--network-status", "--resync", "0.2"):
        give(tmp_path, uid, "10.0.0.2")
        await told(server, "10.0.0.2")


async def test_another_pod_of_that_name_is_told_nothing(server: ApiServer, tmp_path: Path) -> None:
    """The node's records outlive a pod that was deleted by force, and its successor is another pod."""
    uid = await bind_pod(server, tmp_path)
    async with aiohttp.ClientSession(server.url) as session:
        async with session.delete(f"{POD}?gracePeriodSeconds=0") as answer:
            assert answer.status == 200
        spec = {"containers": [{"name": "c", "image": "registry.example/c:1"}], "nodeName": "n1"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
        async with session.post(POD.rpartition("/")[0], json=body) as answer:
            assert answer.status == 201
    async with advertising(tmp_path, "--network-status", "--resync", "0.2") as advertiser:
        give(tmp_path, uid, "10.0.0.2")
        await advertiser.scanned()
        await advertiser.scanned()
        assert await annotations(server) == {}


async def test_without_the_flag_no_pod_is_written(server: ApiServer, tmp_path: Path) -> None:
    """The right to do so is not there either."""
    uid = await bind_pod(server, tmp_path)
    async with advertising(tmp_path, "--resync", "0.2") as advertiser:
        give(tmp_path, uid, "10.0.0.2")
        await advertiser.scanned()
        assert KEY not in await annotations(server)
