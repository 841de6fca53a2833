"""What the scheduler says of the admission policies: its metric, its pod's condition, its log."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import Client
from mooring.kube.guard import BINDINGS_PATH, POLICIES, POLICIES_PATH
from scheduler.server.startup import CONDITION, PolicyCheck
from tests.scheduler.server.cluster import Cluster

GUARD = Path(__file__).parents[3] / "manifests/base/guard"
POD = "/api/v1/namespaces/mooring-system/pods/scheduler-0"
PATHS = {"ValidatingAdmissionPolicy": POLICIES_PATH, "ValidatingAdmissionPolicyBinding": BINDINGS_PATH}
pytestmark = pytest.mark.parametrize("server", ["devcluster"], indirect=True)


@pytest.fixture
async def cluster(client: Client) -> Cluster:
    """Give a cluster that has the scheduler's own pod, and no policy."""
    cluster = Cluster(client)
    await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "mooring-system"}})
    await cluster.add_pod("scheduler-0", namespace="mooring-system")
    return cluster


async def install_guard(cluster: Cluster) -> None:
    for file in sorted(GUARD.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] in PATHS:
                await cluster.call("POST", PATHS[document["kind"]], document)


async def condition_of(cluster: Cluster) -> dict[str, Any]:
    """Return the condition of the scheduler's pod."""
    conditions = (await cluster.call("GET", POD))["status"]["conditions"]
    (found,) = (one for one in conditions if one["type"] == CONDITION)
    return dict(found)


def states() -> dict[str, set[str]]:
    """Return the states that the metric has, by policy."""
    name, values = "mooring_admission_policies", ("bound", "missing", "unbound", "unknown")
    return {
        policy: {state for state in values if REGISTRY.get_sample_value(name, {"policy": policy, "state": state})}
        for policy in POLICIES
    }


async def test_policies_that_are_missing_or_do_not_deny_are_said_and_so_is_their_return(cluster: Cluster) -> None:
    """By all three ways, and once; each state of a policy excludes the others."""
    check = PolicyCheck(cluster.client, "mooring-system/scheduler-0")
    with capture_logs() as said:
        await check.check()
        await check.check()
    assert states() == {key: {"missing"} for key in POLICIES}
    assert [(one["log_level"], one["policy"]) for one in said] == [("error", name) for name in POLICIES]
    found = await condition_of(cluster)
    assert (found["status"], found["reason"]) == ("False", "NotBound")
    assert found["message"].startswith("mooring-assignment: ValidatingAdmissionPolicy is missing")
    await install_guard(cluster)
    with capture_logs() as said:
        await check.check()
    assert states() == {key: {"bound"} for key in POLICIES}
    assert [one["event"] for one in said] == ["admission policies are bound"]
    assert ((await condition_of(cluster))["status"], (await condition_of(cluster))["message"]) == ("True", "")
    await cluster.patch(f"{BINDINGS_PATH}/mooring-inventory", spec={"validationActions": ["Audit"]})
    await check.check()
    assert states()["mooring-inventory"] == {"unbound"}
    assert (await condition_of(cluster))["status"] == "False"


async def test_what_may_not_be_read_is_not_known(server: ApiServer, cluster: Cluster) -> None:
    """A scheduler without the right says neither that they are missing nor that all is well."""
    await install_guard(cluster)
    forbidden = Fault("GET", "/validatingadmissionpolicies/", "answer", times=100, code=403)
    server.faults.plan(forbidden)
    check = PolicyCheck(cluster.client, "mooring-system/scheduler-0")
    await check.check()
    assert states() == {key: {"unknown"} for key in POLICIES}
    found = await condition_of(cluster)
    assert (found["status"], found["reason"]) == ("Unknown", "NotKnown")
    assert "403" in found["message"]


async def test_a_condition_that_could_not_be_set_is_set_by_the_next_check(server: ApiServer, cluster: Cluster) -> None:
    """The API server's failure is not the end of it; without a pod's name there is none to set."""
    server.faults.plan(Fault("PATCH", "/status$", "answer", code=503))
    check = PolicyCheck(cluster.client, "mooring-system/scheduler-0")
    await check.check()
    await check.check()
    assert (await condition_of(cluster))["status"] == "False"
    await PolicyCheck(cluster.client, "").check()
