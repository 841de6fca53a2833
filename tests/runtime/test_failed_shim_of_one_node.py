"""The shim of one host of a cluster exits at every start: its node stays Ready, and no plain pod fails."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from advertiser.formats.shim_condition import SHIM_FAILED, TYPE
from devcluster.api import PODS, Api
from devcluster.cluster import Cluster
from devcluster.demo import check
from devcluster.demo.scenario import DemoPod
from tests.support.polling import wait_until

# Each has a runtime, a kubelet and three programs of ours: --long takes as many as a machine of 16 GiB carries.
FEW, MANY = 4, 20
FAILED = "h1"
pytestmark = [pytest.mark.root, pytest.mark.containerd, pytest.mark.timeout(3600)]


class NodeWatch:
    """Every condition Ready that a watcher of the nodes was shown, by node."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.not_ready: set[str] = set()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for event in self._api.watch("/api/v1/nodes"):
            node = event["object"]
            if condition(node, "Ready").get("status") not in (None, "True"):
                self.not_ready.add(node["metadata"]["name"])


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    count = MANY if request.config.getoption("--long") else FEW
    cluster = Cluster(tmp_path, tuple(f"h{number}" for number in range(1, count + 1)))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.slow
def test_a_shim_that_exits_at_start_takes_no_node_down(cluster: Cluster) -> None:
    """The node says so within half a minute; plain pods start on it as on the others, and when the shim is back."""
    api, shim = Api.of(cluster.kubeconfig), f"{FAILED}-shim"
    nodes, command = NodeWatch(api), cluster.processes.command(shim)
    cluster.processes.kill(shim)
    cluster.processes.start(shim, ["sh", "-c", "while sleep 0.1; do false; done"])
    wait_until(lambda: reason(api) == SHIM_FAILED, limit_s=60)
    start_on_all(api, cluster.nodes, "meanwhile")
    cluster.processes.kill(shim)
    cluster.processes.start(shim, command)
    wait_until(lambda: reason(api) != SHIM_FAILED, limit_s=120)
    start_on_all(api, cluster.nodes, "again")
    assert nodes.not_ready == set()
    assert {event["reason"] for event in api.events_of(FAILED)} >= {SHIM_FAILED}
    assert not [event for pod in api.pods() for event in api.events_of(pod) if event["type"] == "Warning"]
    api.delete_pods()
    wait_until(lambda: not api.pods(), limit_s=120)


def start_on_all(api: Api, hosts: Sequence[str], name: str) -> None:
    for node in hosts:
        pod: Any = DemoPod(f"{name}-{node}", "Running", "asks for nothing").manifest()
        pod["spec"]["nodeName"] = node
        api.request("POST", PODS, pod)
    wait_until(lambda: all(map(check.is_running, api.pods().values())), "plain pods run", 30 * len(hosts))


def reason(api: Api) -> str | None:
    found = condition(api.request("GET", f"/api/v1/nodes/{FAILED}"), TYPE).get("reason")
    return None if found is None else str(found)


def condition(node: Any, kind: str) -> Any:
    conditions = node.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {})
