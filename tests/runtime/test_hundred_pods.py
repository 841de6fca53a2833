"""Three hosts with containerd behind their shims: a hundred pods from manifest to container and back."""

from pathlib import Path

import pytest

from devcluster.api import PODS, Api, Recorder
from devcluster.cluster import Cluster
from devcluster.demo import check, hosts
from devcluster.demo.scenario import DemoPod
from mooring import names
from tests.support.polling import wait_until

PODS_WITH_VFS, PLAIN = 90, 10
RATES_MBPS = (0, 500, 2_000, 5_000)
pytestmark = [pytest.mark.root, pytest.mark.containerd, pytest.mark.timeout(900)]


@pytest.mark.slow
def test_a_hundred_pods_live_and_end_by_their_promises(tmp_path: Path) -> None:
    """Promises 1 to 5, checked from outside with every pod up, and again when all are gone."""
    cluster = Cluster(tmp_path, ("h1", "h2", "h3"), vfs=16)
    try:
        cluster.start()
        live_and_end(cluster)
    finally:
        cluster.stop()


def live_and_end(cluster: Cluster) -> None:
    api = Api.of(cluster.kubeconfig)
    wait_until(lambda: published(api) == len(cluster.nodes), "inventories published", 90)
    before = {node: hosts.state(cluster.layout(node)) for node in cluster.nodes}
    recorder = Recorder(api)
    recorder.start()
    pods = [asking(number) for number in range(PODS_WITH_VFS)]
    plain = [DemoPod(f"plain-{number}", "Running", "asks for nothing") for number in range(PLAIN)]
    for pod in (*pods, *plain):
        api.request("POST", PODS, pod.manifest())
    wait_until(lambda: all(map(check.is_running, api.pods().values())), "a hundred pods Running", 300)
    found = api.pods()
    given, views = check.look(cluster, found)
    assert (len(found), len(given), len(views)) == (100, PODS_WITH_VFS, 100)
    assert_held(check.given_once(given))
    assert_held(check.one_write(recorder.seen))
    assert_held(check.exactly_applied(given, views, pods))
    assert_held(check.untouched(found, views, [pod.name for pod in plain]))
    api.delete_pods()
    wait_until(lambda: not api.pods(), "every pod deleted", 300)

    def after() -> check.Verdict:
        return check.given_back(before, {node: hosts.state(cluster.layout(node)) for node in cluster.nodes})

    wait_until(lambda: after().held, "every VF back", 90)


def asking(number: int) -> DemoPod:
    request = f'[{{"min_tx_rate": {RATES_MBPS[number % len(RATES_MBPS)]}}}]'
    return DemoPod(f"asks-{number}", "Running", "one VF", {names.REQUEST: request})


def published(api: Api) -> int:
    nodes = api.items("/api/v1/nodes")
    return sum(1 for node in nodes if names.INVENTORY in node["metadata"].get("annotations", {}))


def assert_held(verdict: check.Verdict) -> None:
    assert verdict.held, verdict.breaches
