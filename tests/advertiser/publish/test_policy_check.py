"""Whether the admission policy keeps this advertiser to its own node: tried out by a write that it must refuse."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from advertiser.publish.metrics import Metrics
from advertiser.publish.policy_check import POLICY, PolicyCheck
from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer, Options
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.kube.guard import BINDINGS_PATH, POLICIES_PATH
from tests.manifests.accounts import Program, put
from tests.manifests.rendering import raw

ADVERTISER = Program("advertiser")
_PATHS = {"ValidatingAdmissionPolicy": POLICIES_PATH, "ValidatingAdmissionPolicyBinding": BINDINGS_PATH}


@asynccontextmanager
async def advertiser_of(server: ApiServer, admin: Client, folder: Path, **bound: Any) -> AsyncIterator[Client]:
    """Give a client with the advertiser's own rights."""
    await ADVERTISER.install(admin)
    await ADVERTISER.log_in(admin, folder / "admin", folder / "advertiser", **bound)
    async with Client(load_access(str(folder / "advertiser"))) as client:
        yield client


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(Options(rbac=True, admission=True)) as server:
        (tmp_path / "admin").write_text(server.kubeconfig_text())
        yield server


@pytest.fixture
async def admin(server: ApiServer, tmp_path: Path) -> AsyncIterator[Client]:
    async with Client(load_access(str(tmp_path / "admin"))) as admin:
        await admin.request("POST", "/api/v1/nodes", b'{"metadata":{"name":"n1"}}')
        yield admin


def state(metrics: Metrics) -> list[str]:
    """Return the states that the metric shows as 1."""
    name = f'mooring_inventory_admission_policies{{policy="{POLICY}",state="'
    lines = [line.split() for line in metrics.text().decode().splitlines() if line.startswith(name)]
    return [series[len(name) :].rstrip('"}') for series, value in lines if float(value)]


async def test_a_missing_policy_is_said_and_so_is_its_return(server: ApiServer, admin: Client, tmp_path: Path) -> None:
    """The write is tried only: nothing of it is stored. It needs no right that the advertiser has not."""
    metrics = Metrics()
    async with advertiser_of(server, admin, tmp_path, kind="Node", name="n1") as client:
        check = PolicyCheck(client, "n1", metrics)
        with capture_logs() as said:
            await check.check()
            await check.check()
        assert [(one["log_level"], one["event"]) for one in said] == [("error", "admission policy is not enforced")]
        assert (check.state, state(metrics)) == ("missing", ["missing"])
        for document in raw("base/guard/inventory.yaml"):
            await put(admin, _PATHS[document["kind"]], document)
        with capture_logs() as said:
            await check.check()
        assert [one["event"] for one in said] == ["admission policy is bound"]
        assert (check.state, state(metrics)) == ("bound", ["bound"])
    node = json.loads(await admin.request("GET", "/api/v1/nodes/n1"))
    assert "mooring.dev/policy-probe" not in node["metadata"].get("annotations", {})
    assert server.authorizer is not None
    assert server.authorizer.refused == {}


async def test_what_the_answer_does_not_tell_is_not_known(server: ApiServer, admin: Client) -> None:
    """No node, no right, no answer: none of them is the policy's refusal."""
    for name, fault in (
        ("n2", None),
        ("n1", Fault("PATCH", "/nodes/n1", "answer", code=403)),
        ("n1", Fault("PATCH", "/nodes/n1", "answer", code=503)),
    ):
        if fault is not None:
            server.faults.plan(fault)
        check = PolicyCheck(admin, name, Metrics())
        await check.check()
        assert check.state == "unknown"
