"""Rates of running pods through every program of a cluster: from the user's edit to the NIC, and back to the scheduler.

While the tests run, what each VF has is compared with what the API server says that it reserves, and each PF's sum with
its line rate.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.cluster import Cluster
from devcluster.demo import check, hosts
from devcluster.demo.api import PODS, Api, Object
from devcluster.hosts.layout import Layout
from devcluster.runtime import cnicalls
from devcluster.runtime.cnicalls import Attachment
from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import CNI as CNI_PROGRAM
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.annotations.rates import read_rates, read_rates_in_force, reserved_rates
from mooring.files import write_file
from mooring.records.rates_exchange import HANDED_OVER
from mooring.records.rates_record import rates_record_name
from mooring.records.run_folder import VERSIONS
from tests.support.polling import wait_until

pytestmark = pytest.mark.root
NODE = "n1"
PF, LINE_RATE_MBPS = "enp4s0f0", 100_000
CNI, ADVERTISER, SCHEDULER = f"{NODE}-cni", f"{NODE}-advertiser", "scheduler"
Rates = tuple[int, int]


def request(rates: Rates, **fields: Any) -> dict[str, str]:
    low, high = rates
    return {names.REQUEST: json.dumps([{"pf": PF, "min_tx_rate": low, "max_tx_rate": high, **fields}])}


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod with one VF as its user, its host and the commands see it."""

    cluster: Cluster
    name: str
    uid: str

    @property
    def api(self) -> Api:
        return Api.of(self.cluster.kubeconfig)

    @property
    def host(self) -> Layout:
        return self.cluster.layout(NODE)

    def look(self) -> Object:
        return self.api.request("GET", f"{PODS}/{self.name}")

    def vf(self) -> Mapping[str, Any]:
        decided = check.assignment(self.look())
        assert decided is not None
        (vf,) = decided["vfs"]
        return dict(vf)

    def edit(self, rates: Rates, **fields: Any) -> None:
        """Change the request as `kubectl annotate --overwrite` does."""
        change = {"metadata": {"annotations": request(rates, **fields)}}
        self.api.request("PATCH", f"{PODS}/{self.name}", change)

    def delete(self) -> None:
        self.api.request("DELETE", f"{PODS}/{self.name}")

    def condition(self) -> tuple[str, str, str]:
        conditions = self.look()["status"].get("conditions", ())
        found: Object = next((one for one in conditions if one["type"] == "MooringRates"), {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def await_reason(self, reason: str) -> str:
        """Return the condition's message once it has a reason."""
        wait_until(lambda: self.condition()[1] == reason, f"{self.name}'s MooringRates {reason}", pause_s=0.1)
        return self.condition()[2]

    def await_in_force(self, rates: Rates, generation: int) -> None:
        """Wait until NIC, node and condition agree."""
        wait_until(lambda: self.nic() == rates, f"{self.name} has {rates}", pause_s=0.05)
        wait_until(lambda: self.in_force() == generation, f"generation {generation} in force", pause_s=0.1)
        wait_until(lambda: self.condition()[:2] == ("True", "InForce"), "MooringRates InForce", pause_s=0.1)

    def allocated(self) -> Rates | None:
        text = self.look()["metadata"]["annotations"].get(names.RATES)
        if text is None:
            return None
        (one,) = read_rates(text).rates
        return one.min_tx_rate or 0, one.max_tx_rate or 0

    def in_force(self) -> int | None:
        node = self.api.request("GET", f"/api/v1/nodes/{NODE}")
        text = node["metadata"]["annotations"].get(names.RATES_IN_FORCE)
        return None if text is None else read_rates_in_force(text).generations.get(self.uid)

    def nic(self) -> Rates:
        return hosts.rates(self.host, PF, self.vf()["vf"])

    def ledger(self) -> Mapping[str, Any]:
        return hosts.ledger(self.host).get(self.vf()["pci"], {})

    def told(self) -> set[str]:
        return {event["reason"] for event in self.api.events_of(self.name)}

    def row(self) -> set[str]:
        """Return the cells of this pod's row of `kubectl mooring pods -o wide`."""
        own = ("cli", "pods", "-o", "wide", "--kubeconfig", str(self.cluster.kubeconfig))
        rows = [set(row.split()) for row in run(sys.executable, "-m", *own).splitlines()]
        return next(row for row in rows if self.name in row)

    def shown(self) -> Mapping[str, Any]:
        """Return this pod's VF as `mooring-cni show` has it."""
        table = ("devcluster.hosts.cni", "--vf-table", str(self.host.vftable), "show", "-o", "json")
        folders = ("--sysfs", str(self.host.sys), "--state", str(self.host.state), "--run", str(self.host.run))
        enter = ("nsenter", f"--net={self.host.netns}")
        found = json.loads(run(*enter, sys.executable, "-m", *table, *folders))
        return next(vf for vf in found["vfs"] if vf["uid"] == self.uid)

    def check(self) -> str:
        """Call the chain's plugin with CHECK, as libcni does; return what it says, empty if all is as it was made."""
        entry = self.ledger()
        netns = entry["netns"]["path"]
        (conflist,) = self.host.cni_conf.glob("*.conflist")
        network = cnicalls.parse_conflist(conflist.read_text())
        (plugin,) = [one for one in network.plugins if "mooring" in str(one["type"])]
        interfaces = [{"name": entry["ifname"], "sandbox": netns}]
        result = {"cniVersion": network.version, "interfaces": interfaces}
        result["ips"] = [{"address": address, "interface": 0} for address in entry.get("addresses", ())]
        annotations = self.look()["metadata"]["annotations"]
        attachment = Attachment(entry["container"], netns, "eth0", "default", self.name, self.uid, annotations)
        variables = cnicalls.environment("CHECK", attachment, str(self.host.cni_bin))
        given = json.dumps(cnicalls.configuration(network, plugin, attachment, result))
        command = ("nsenter", f"--net={self.host.netns}", str(self.host.cni_bin / str(plugin["type"])))
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=environment)
        return done.stdout

    def stop_sandbox(self) -> None:
        """Stop the sandbox behind the kubelet's back: it makes another one."""
        with grpc.insecure_channel(f"unix://{self.host.run}/cri.sock") as channel:
            stub = cri_grpc.RuntimeServiceStub(channel)
            stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=self.ledger()["container"]), timeout=60)


def refuse(host: Layout, *settings: str) -> None:
    """Let the PF refuse these settings from now on; nothing else writes its table meanwhile."""
    table = json.loads(host.vftable.read_text())
    table["pfs"][PF]["refuse"] = list(settings)
    write_file(host.vftable, json.dumps(table))


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@dataclass(slots=True)
class Observer:
    """What NICs have beside what is reserved, compared again and again; ``breaches`` is empty if promise 8 holds."""

    cluster: Cluster
    breaches: list[str] = field(default_factory=list)
    compared: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        before = self._reserved()
        while not self._ended.wait(0.02):
            table = json.loads(self.cluster.layout(NODE).vftable.read_text())["pfs"]
            after = self._reserved()
            self._compare(table, before, after)
            before = after

    def end(self) -> None:
        self._ended.set()

    def _compare(self, table: Mapping[str, Any], before: Mapping[Any, int], after: Mapping[Any, int]) -> None:
        """Compare what stood between two equal looks at the API server; the sum of each PF in any case."""
        self.compared += 1
        for pf, held in table.items():
            rates = {int(vf): settings.get("min_tx_rate", 0) for vf, settings in held["set"].items()}
            if sum(rates.values()) > LINE_RATE_MBPS:
                self.breaches.append(f"pf {pf!r} has {rates}")
            for vf, rate in rates.items():
                reserved = after.get((pf, vf))
                if reserved is not None and reserved == before.get((pf, vf)) and rate > reserved:
                    self.breaches.append(f"vf {vf} of {pf!r} has {rate}, reserved are {reserved}")
        sums = {pf: sum(amount for _, amount in of_pf) for pf, of_pf in groupby(sorted(after.items()), _pf_of)}
        self.breaches += [f"pf {pf!r} has {total} reserved" for pf, total in sums.items() if total > LINE_RATE_MBPS]

    def _reserved(self) -> dict[tuple[str, int], int]:
        """Return what the API server's objects say that each VF of the node reserves."""
        api = Api.of(self.cluster.kubeconfig)
        found: dict[tuple[str, int], int] = {}
        # The node first: a generation that it has in force is not older than what the pods say then.
        node = api.request("GET", f"/api/v1/nodes/{NODE}")["metadata"]["annotations"]
        text = node.get(names.RATES_IN_FORCE)
        says_rates = read_inventory(node[names.INVENTORY]).rates
        in_force = read_rates_in_force(text).generations if text is not None and says_rates else None
        for pod in api.pods().values():
            annotations = pod["metadata"].get("annotations", {})
            has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
            if pod["spec"].get("nodeName") != NODE or names.ASSIGNMENT not in annotations or has_ended:
                continue
            assignment = read_assignment(annotations[names.ASSIGNMENT])
            rates = read_rates(annotations[names.RATES]) if names.RATES in annotations else None
            reserved = reserved_rates(assignment, rates, in_force)
            found |= {(vf.pf, vf.vf): amount for vf, amount in zip(assignment.vfs, reserved, strict=True)}
        return found


def _pf_of(item: tuple[tuple[str, int], int]) -> str:
    return item[0][0]


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
    told = f"PF {PF!r}: 40000 Mb/s more are needed, and others reserve too much"
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
    told = ("False", "Infeasible", f"node {NODE} changes no rates of running pods")
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
    changes_none = f"node {NODE} changes no rates of running pods"
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
