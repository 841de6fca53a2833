"""What the scheduler says of the admission policies: its metric, its pod's condition, its log."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer, Options
from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.guard import BINDINGS_PATH, POLICIES, POLICIES_PATH
from scheduler.server.startup import CONDITION, PolicyCheck

GUARD = Path(__file__).parents[3] / "manifests/base/guard"
POD = "/api/v1/namespaces/mooring-system/pods/scheduler-0"
PATHS = {"ValidatingAdmissionPolicy": POLICIES_PATH, "ValidatingAdmissionPolicyBinding": BINDINGS_PATH}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(Options()) as server:
        yield server


@pytest.fixture
async def client(server: ApiServer, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server that has the scheduler's own pod, and no policy."""
    (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
    async with Client(load_access(str(tmp_path / "kubeconfig"))) as client:
        await client.request("POST", "/api/v1/namespaces", b'{"metadata":{"name":"mooring-system"}}')
        pod = {"metadata": {"name": "scheduler-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await client.request("POST", POD.rpartition("/")[0], json.dumps(pod).encode())
        yield client


async def install_guard(client: Client) -> None:
    for file in sorted(GUARD.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] in PATHS:
                await client.request("POST", PATHS[document["kind"]], json.dumps(document).encode())


async def condition_of(client: Client) -> dict[str, Any]:
    """Return the condition of the scheduler's pod."""
    conditions = json.loads(await client.request("GET", POD))["status"]["conditions"]
    (found,) = (one for one in conditions if one["type"] == CONDITION)
    return dict(found)


def states() -> dict[str, set[str]]:
    """Return the states that the metric has, by policy."""
    name, values = "mooring_admission_policies", ("bound", "missing", "unbound", "unknown")
    return {
        policy: {state for state in values if REGISTRY.get_sample_value(name, {"policy": policy, "state": state})}
        for policy in POLICIES
    }


async def test_policies_that_are_missing_or_do_not_deny_are_said_and_so_is_their_return(client: Client) -> None:
    """By all three ways, and once; each state of a policy excludes the others."""
    check = PolicyCheck(client, "mooring-system/scheduler-0")
    with capture_logs() as said:
        await check.check()
        await check.check()
    assert states() == {key: {"missing"} for key in POLICIES}
    assert [(one["log_level"], one["policy"]) for one in said] == [("error", name) for name in POLICIES]
    found = await condition_of(client)
    assert (found["status"], found["reason"]) == ("False", "NotBound")
    assert found["message"].startswith("mooring-assignment: ValidatingAdmissionPolicy is missing")
    await install_guard(client)
    with capture_logs() as said:
        await check.check()
    assert states() == {key: {"bound"} for key in POLICIES}
    assert [one["event"] for one in said] == ["admission policies are bound"]
    assert ((await condition_of(client))["status"], (await condition_of(client))["message"]) == ("True", "")
    audits = b'{"spec":{"validationActions":["Audit"]}}'
    await client.request("PATCH", f"{BINDINGS_PATH}/mooring-inventory", audits, MERGE_PATCH)
    await check.check()
    assert states()["mooring-inventory"] == {"unbound"}
    assert (await condition_of(client))["status"] == "False"


async def test_what_may_not_be_read_is_not_known(server: ApiServer, client: Client) -> None:
    """A scheduler without the right says neither that they are missing nor that all is well."""
    await install_guard(client)
    forbidden = Fault("GET", "/validatingadmissionpolicies/", "answer", times=100, code=403)
    server.faults.plan(forbidden)
    check = PolicyCheck(client, "mooring-system/scheduler-0")
    await check.check()
    assert states() == {key: {"unknown"} for key in POLICIES}
    found = await condition_of(client)
    assert (found["status"], found["reason"]) == ("Unknown", "NotKnown")
    assert "403" in found["message"]


async def test_a_condition_that_could_not_be_set_is_set_by_the_next_check(server: ApiServer, client: Client) -> None:
    """The API server's failure is not the end of it; without a pod's name there is none to set."""
    server.faults.plan(Fault("PATCH", "/status$", "answer", code=503))
    check = PolicyCheck(client, "mooring-system/scheduler-0")
    await check.check()
    await check.check()
    assert (await condition_of(client))["status"] == "False"
    await PolicyCheck(client, "").check()
