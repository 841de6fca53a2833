"""Rates of running pods through every program of a cluster: from the user's edit to the NIC, and back to the scheduler.

While the tests run, what each VF has is compared with what the API server says that it reserves, and each PF's sum with
its line rate.
"""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.api import PODS, Api
from devcluster.cluster import Cluster
from devcluster.demo import check, hosts
from mooring import names
from mooring.annotations.inventory import CNI as CNI_PROGRAM
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.files import write_file
from mooring.records.rates_exchange import HANDED_OVER
from mooring.records.rates_record import rates_record_name
from mooring.records.run_folder import VERSIONS
from tests.devcluster.demo.running_pod import NODE, PF, Observer, Rates, RunningPod, refuse, request
from tests.support.polling import wait_until

pytestmark = pytest.mark.root
CNI, ADVERTISER, SCHEDULER = f"{NODE}-cni", f"{NODE}-advertiser", "scheduler"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start one simulated host with the small runtime, on which rates change."""
    started = Cluster(tmp_path_factory.mktemp("rates"), (NODE,), runtime="small", rates_on=(NODE,))
    try:
        started.start()
        api = Api.of(started.kubeconfig)

        def is_published() -> bool:
            annotations = api.request("GET", f"/api/v1/nodes/{NODE}")["metadata"].get("annotations", {})
            text = annotations.get(names.INVENTORY)
            return text is not None and read_inventory(text).rates and names.RATES_IN_FORCE in annotations

        wait_until(is_published, "an inventory, and that rates change", pause_s=0.1)
        yield started
    finally:
        started.stop()


@pytest.fixture(autouse=True)
def observed(cluster: Cluster) -> Iterator[None]:
    """Compare during each test, end its pods, and find the node's NIC as it was before them."""
    observer, before = Observer(cluster), hosts.state(cluster.layout(NODE))
    thread = threading.Thread(target=observer.run)
    thread.start()
    try:
        yield
        api = Api.of(cluster.kubeconfig)
        api.delete_pods()
        wait_until(lambda: not api.pods(), "no pod", pause_s=0.1)
        wait_until(lambda: hosts.state(cluster.layout(NODE)) == before, "every VF is as it was", pause_s=0.2)
    finally:
        observer.end()
        thread.join()
    assert observer.compared
    assert observer.breaches == []


def make(cluster: Cluster, name: str, rates: Rates) -> RunningPod:
    """Create a pod, and return it once it runs."""
    container = {"name": "main", "image": "busybox", "command": ["sleep", "3600"]}
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    metadata = {"name": name, "namespace": "default", "annotations": request(rates)}
    api = Api.of(cluster.kubeconfig)
    made = api.request("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    wait_until(lambda: check.is_running(api.pods()[name]), f"{name} is Running", pause_s=0.1)
    return RunningPod(cluster, name, made["metadata"]["uid"])


def test_rates_are_raised_lowered_deferred_and_refused_while_the_pod_runs(cluster: Cluster) -> None:
    """CHECK, `mooring-cni show` and `kubectl mooring pods` agree, and the VF stays in its sandbox."""
    pod, other = make(cluster, "ours", (40_000, 50_000)), make(cluster, "other", (50_000, 0))
    assert pod.in_force() is None
    sandbox = pod.ledger()["container"]

    pod.edit((45_000, 60_000))
    pod.await_in_force((45_000, 60_000), 1)
    pod.edit((20_000, 30_000))
    pod.await_in_force((20_000, 30_000), 2)

    pod.edit((60_000, 60_000))
    told = f"PF {PF!r}: 40000 more Mb/s are needed, but other pods reserve too much"
    assert pod.await_reason("Deferred") == told
    assert (pod.allocated(), pod.nic()) == ((20_000, 30_000), (20_000, 30_000))
    assert pod.row() >= {"20000", "30000", "60000/60000", "Deferred/InForce"}
    other.delete()
    pod.await_in_force((60_000, 60_000), 3)

    pod.edit((70_000, 70_000), trust=True)
    assert "trust" in pod.await_reason("Refused")
    pod.edit((120_000, 0))
    pod.await_reason("Infeasible")
    assert (pod.allocated(), pod.nic(), pod.in_force()) == ((60_000, 60_000), (60_000, 60_000), 3)

    assert pod.check() == ""
    assert pod.shown()["rates"] == {"generation": 3, "in_force": True}
    assert pod.told() >= {f"Rates{reason}" for reason in ("Allocated", "InForce", "Deferred", "Refused", "Infeasible")}
    assert pod.ledger()["container"] == sandbox


def test_a_sandbox_that_is_made_again_has_the_new_rates(cluster: Cluster) -> None:
    """ADD sets them, and DEL before it gives back what the first ADD had found."""
    pod = make(cluster, "ours", (10_000, 0))
    pod.edit((30_000, 40_000))
    pod.await_in_force((30_000, 40_000), 1)
    sandbox = pod.ledger()["container"]
    pod.stop_sandbox()

    def has_another() -> bool:
        entry = pod.ledger()
        return entry.get("phase") == "held" and entry["container"] != sandbox

    wait_until(has_another, "the pod's VF in another sandbox", pause_s=0.1)
    assert (pod.nic(), pod.check(), pod.in_force()) == ((30_000, 40_000), "", 1)


def test_what_a_nic_refuses_is_not_in_force_and_stays_reserved(cluster: Cluster) -> None:
    """The owner is told by an event; the next edit is tried at once, and has what the NIC takes by then."""
    pod = make(cluster, "ours", (30_000, 0))
    refuse(pod.host, "min_tx_rate")
    try:
        pod.edit((10_000, 0))
        wait_until(lambda: "VfRatesRefused" in pod.told(), "the owner is told", pause_s=0.1)
        assert (pod.allocated(), pod.nic(), pod.in_force()) == ((10_000, 0), (30_000, 0), None)
        assert pod.condition()[1] == "Allocated"
        assert pod.shown()["rates"] == {"generation": 1, "in_force": False}
        assert "rates of generation 1 are not in force" in pod.check()
    finally:
        refuse(pod.host)
    pod.edit((20_000, 0))
    pod.await_in_force((20_000, 0), 2)


def test_without_the_flag_no_rate_changes_until_it_is_back(cluster: Cluster) -> None:
    """The condition says so, and nothing is written; the edit is decided once the node changes rates again."""
    pod, processes = make(cluster, "ours", (10_000, 0)), cluster.processes
    pod.edit((20_000, 0))
    pod.await_in_force((20_000, 0), 1)
    with_flag = processes.command(ADVERTISER)
    processes.kill(ADVERTISER)
    processes.start(ADVERTISER, [word for word in with_flag if word != "--rates"])
    wait_until(lambda: pod.in_force() is None, "the node changes no rates", pause_s=0.1)
    pod.edit((30_000, 0))
    told = ("False", "Infeasible", f"node {NODE} does not support rate changes of running pods")
    wait_until(lambda: pod.condition() == told, "told", pause_s=0.1)
    assert (pod.allocated(), pod.nic()) == ((20_000, 0), (20_000, 0))
    processes.kill(ADVERTISER)
    processes.start(ADVERTISER, with_flag)
    pod.await_in_force((30_000, 0), 2)


def test_a_node_whose_advertiser_is_of_an_older_version_changes_no_rates(cluster: Cluster) -> None:
    """It writes an inventory without `rates`, and leaves what is in force; what was allocated says why it waits."""
    pod, processes = make(cluster, "ours", (40_000, 0)), cluster.processes
    pod.edit((10_000, 0))
    pod.await_in_force((10_000, 0), 1)
    command = processes.command(ADVERTISER)
    processes.kill(ADVERTISER)
    node = f"/api/v1/nodes/{NODE}"
    annotations = pod.api.request("GET", node)["metadata"]["annotations"]
    older = dump_inventory(replace(read_inventory(annotations[names.INVENTORY]), rates=False))
    own = Api.of(Path(command[command.index("--kubeconfig") + 1]))
    own.request("PATCH", node, {"metadata": {"annotations": {names.INVENTORY: older}}})
    changes_none = f"node {NODE} does not support rate changes of running pods"
    message = pod.await_reason("Infeasible")
    assert message.startswith(f"{changes_none}: the largest of generation 1, ")
    assert pod.in_force() == 1
    pod.edit((30_000, 0))
    wait_until(lambda: pod.condition()[2] == changes_none, "told of the edit", pause_s=0.1)
    assert (pod.allocated(), pod.nic()) == ((10_000, 0), (10_000, 0))
    processes.restart(ADVERTISER)
    pod.await_in_force((30_000, 0), 2)


def test_what_an_older_cni_server_has_set_counts_until_a_newer_one_has_set_it_again(cluster: Cluster) -> None:
    """It leaves what was in force, and sets the assignment's rates: its version says so, and the node says less."""
    pod, processes = make(cluster, "ours", (40_000, 0)), cluster.processes
    pod.edit((10_000, 0))
    pod.await_in_force((10_000, 0), 1)
    processes.kill(CNI)
    write_file(pod.host.run / VERSIONS / CNI_PROGRAM, "older")
    pod.await_reason("Infeasible")
    table = json.loads(pod.host.vftable.read_text())
    table["pfs"][PF]["set"][str(pod.vf()["vf"])]["min_tx_rate"] = 40_000
    write_file(pod.host.vftable, json.dumps(table))
    assert (pod.nic(), pod.in_force()) == ((40_000, 0), 1)
    processes.restart(CNI)
    pod.await_in_force((10_000, 0), 1)


def test_programs_that_are_killed_between_edit_and_nic_go_on(cluster: Cluster) -> None:
    """Each has done its part when it is killed, and the next one does not run yet: what is on its way is completed."""
    pod, other = make(cluster, "ours", (40_000, 0)), make(cluster, "other", (30_000, 0))
    processes = cluster.processes
    for program in (CNI, ADVERTISER, SCHEDULER):
        processes.kill(program)
    pod.edit((60_000, 70_000))
    processes.restart(SCHEDULER)
    wait_until(lambda: pod.allocated() == (60_000, 70_000), "allocated", pause_s=0.05)
    processes.kill(SCHEDULER)
    # Desired meanwhile: the last decision counts.
    pod.edit((20_000, 0))
    other.edit((40_000, 0))
    processes.restart(ADVERTISER)
    wait_until((pod.host.run / HANDED_OVER / f"{pod.uid}.json").exists, "handed over", pause_s=0.05)
    processes.kill(ADVERTISER)
    processes.restart(CNI)
    wait_until((pod.host.state / rates_record_name(pod.uid)).exists, "recorded", pause_s=0.002)
    processes.kill(CNI)
    for program in (CNI, ADVERTISER, SCHEDULER):
        processes.restart(program)
    pod.await_in_force((20_000, 0), 2)
    other.await_in_force((40_000, 0), 1)
    assert (pod.check(), other.check()) == ("", "")
