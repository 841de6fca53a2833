"""The advertiser as a process says of its node what `mooring-node check` has left: condition, Event and metric."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from advertiser.formats.cluster_facts import NodeCondition
from advertiser.formats.shim_condition import SHIM_FAILED, STALE, TYPE
from advertiser.publish.metrics import Metrics
from advertiser.publish.shim_condition_writer import ShimConditionWriter
from cni.server.extracts import make_folders
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.sysfs import build
from mooring.files import write_shared
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.records import node_check, shim_bypass
from mooring.records.node_check import Finding, KubeletSocket, NodeCheck, dump_node_check
from mooring.records.shim_bypass import ShimBypass, dump_shim_bypass
from tests.advertiser.program import advertising
from tests.support.polling import eventually
from tests.support.simulated_nics import MLX5

_NODE = "/api/v1/nodes/n1"
_READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
_PAST = Finding("kubelet", "/var/lib/kubelet/config.yaml", "does not contain …")


async def test_the_node_says_whether_its_kubelet_speaks_to_the_shim(tmp_path: Path) -> None:
    """Condition and Event with each change and not without one; the kubelet's own conditions stay as they are."""
    build(tmp_path / "sys", MLX5.host(vfs=4))
    make_folders(tmp_path / "run")
    async with ApiServer(Options(port=0)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        async with aiohttp.ClientSession(server.url) as session:
            await _add_node(session)
            async with advertising(tmp_path, "--resync", "0.2") as advertiser:
                _leave(tmp_path, "shim")
                good = await _condition(session, lambda found: found["status"] == "False")
                _leave(tmp_path, "runtime", "config.yaml: the kubelet is configured with …", _PAST)
                bad = await _condition(session, lambda found: found["status"] == "True")
                assert (bad["reason"], bad["message"]) == (
                    "KubeletPastShim",
                    "config.yaml: the kubelet is configured with …",
                )
                assert good["lastTransitionTime"] <= bad["lastTransitionTime"]
                # As a kubelet writes its node: the advertiser compares again, and writes nothing.
                written = await _label(session)
                for _ in range(2):
                    _leave(tmp_path, "runtime", "config.yaml: the kubelet is configured with …", _PAST)
                    await advertiser.scanned()
                assert (await _get(session, _NODE))["metadata"]["resourceVersion"] == written
                _, page = await advertiser.page("/metrics")
                assert 'mooring_node_check_kubelet{state="runtime"} 1.0' in page
                assert 'mooring_node_check_kubelet{state="shim"} 0.0' in page
                assert "mooring_node_check_findings 1.0" in page
                await _a_failed_shim_is_said(tmp_path, session, advertiser)
                _leave(tmp_path, "shim", age=2 * STALE)
                await _condition(session, lambda found: found["reason"] == "NotChecked")
                (tmp_path / "run" / node_check.NAME).write_text("{")
                unreadable = await _condition(session, lambda found: found["reason"] == "NotKnown")
                assert "node-check.json" in unreadable["message"]
            events = (await _get(session, "/api/v1/namespaces/default/events"))["items"]
            assert [one["reason"] for one in events] == [
                "KubeletPastShim",
                "ShimFailed",
                "KubeletUsesShim",
                "NotChecked",
                "NotKnown",
            ]
            assert {one["involvedObject"]["name"] for one in events} == {"n1"}
            assert _READY in (await _get(session, _NODE))["status"]["conditions"]


async def _a_failed_shim_is_said(folder: Path, session: aiohttp.ClientSession, advertiser: Any) -> None:
    """As mooring-shim-bypass leaves it, until it takes it away."""
    left = folder / "run" / shim_bypass.NAME
    write_shared(left, dump_shim_bypass(ShimBypass("2026-11-22T14:00:00Z", "mooring-cri-shim has not served …")))
    failed = await _condition(session, lambda found: found["reason"] == "ShimFailed")
    assert failed["status"] == "True"
    assert failed["message"] == "bypassed since 2026-11-22T14:00:00Z: mooring-cri-shim has not served …"

    async def is_counted() -> bool:
        # Callers share a page for a second.
        return 'mooring_node_check_kubelet{state="failed"} 1.0' in (await advertiser.page("/metrics"))[1]

    await eventually(is_counted)
    _leave(folder, "shim")
    left.unlink()
    await _condition(session, lambda found: found["reason"] == "KubeletUsesShim")


async def test_a_file_that_is_gone_is_said_after_a_while_and_only_of_a_node_that_was_checked(tmp_path: Path) -> None:
    """Each boot begins without it, and a node without Mooring's part never has one."""
    now = datetime.now(UTC)
    async with ApiServer(Options(port=0)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        async with Client(load_access(str(tmp_path / "kubeconfig"))) as client:
            never, once = (ShimConditionWriter(client, "n1", Metrics()) for _ in range(2))
            once.set_observed_state([NodeCondition(TYPE, "False", "KubeletUsesShim", "")])
            for writer in (never, once):
                writer.take(None, now)
                writer.take(None, now + STALE)
                assert writer._publisher._desired_state is None
                writer.take(None, now + STALE + timedelta(seconds=1))
            assert never._publisher._desired_state is None
            assert "has not reported since this node booted" in str(once._publisher._desired_state)
            # The end of a bypass is seen without the check.
            over = ShimConditionWriter(client, "n1", Metrics())
            over.set_observed_state([NodeCondition(TYPE, "True", SHIM_FAILED, "")])
            over.take(None, now)
            assert "has not reported since this node booted" in str(over._publisher._desired_state)


def _leave(folder: Path, kubelet: KubeletSocket, why: str = "", *found: Finding, age: timedelta = timedelta()) -> None:
    report = NodeCheck(datetime.now(UTC) - age, kubelet, why, found)
    write_shared(folder / "run" / node_check.NAME, dump_node_check(report))


async def _add_node(session: aiohttp.ClientSession) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    async with session.post("/api/v1/nodes", json=node) as answer:
        assert answer.status == 201
    kind = {"Content-Type": "application/strategic-merge-patch+json"}
    async with session.patch(f"{_NODE}/status", json={"status": {"conditions": [_READY]}}, headers=kind) as answer:
        assert answer.status == 200


async def _label(session: aiohttp.ClientSession) -> str:
    """Change the node as others do; return its version."""
    kind = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(_NODE, json={"metadata": {"labels": {"a": "b"}}}, headers=kind) as answer:
        return str((await answer.json())["metadata"]["resourceVersion"])


async def _get(session: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    async with session.get(path) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def _condition(session: aiohttp.ClientSession, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the node's condition as soon as it is as expected."""

    async def wished() -> dict[str, Any] | None:
        conditions = (await _get(session, _NODE))["status"]["conditions"]
        found = next((one for one in conditions if one["type"] == TYPE), None)
        return found if found is not None and holds(found) else None

    return await eventually(wished)
