"""A pod of the demo whose rates change while it runs, and an observer of what its PFs reserve."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.api import PODS, Api, Object
from devcluster.cluster import Cluster
from devcluster.demo import check, hosts
from devcluster.hosts.layout import Layout
from devcluster.runtime import cnicalls
from devcluster.runtime.cnicalls import Attachment
from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import read_inventory
from mooring.annotations.rates import read_rates, read_rates_in_force, reserved_rates
from mooring.files import write_file
from tests.support.polling import wait_until

NODE = "n1"
PF, LINE_RATE_MBPS = "enp4s0f0", 100_000
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
