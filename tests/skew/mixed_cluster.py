"""A cluster whose programs are of this release and of the one before it, each replaced while pods hold VFs."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devcluster.accounts import Accounts
from devcluster.api import PODS, Api
from devcluster.cluster import Cluster
from devcluster.demo import check, hosts
from devcluster.demo.scenario import DemoPod
from mooring import names
from tests.skew.earlier import Earlier
from tests.support.polling import wait_until

PROGRAMS = ("cni", "shim", "advertiser")
_BUFFERED: Mapping[str, str] = {"PYTHONUNBUFFERED": "1"}


class MixedCluster:
    """Two hosts, ``a`` and ``b``, with the earlier release's programs and manifests at first.

    Besides them mooring-shim-bypass runs on ``a``, as after a return to a release that does not have it.
    """

    def __init__(self, root: Path, earlier: Earlier) -> None:
        self._earlier = earlier
        self._notified = {node: _Notified(root / f"{node}.notify") for node in ("a", "b")}
        programs = ("scheduler", *(f"{node}-{program}" for node in ("a", "b") for program in PROGRAMS))
        shims = {f"{node}-shim": {"NOTIFY_SOCKET": str(each.path)} for node, each in self._notified.items()}
        self.cluster = Cluster(
            root / "cluster",
            ("a", "b"),
            runtime="small",
            rates_on=("a", "b"),
            is_whole=True,
            environments={name: {**earlier.environment, **shims.get(name, {})} for name in programs},
            manifests=earlier.manifests,
        )
        self._shims: dict[str, int] = {}
        self._earlier_advertisers = {"a", "b"}

    def start(self) -> None:
        self.cluster.start()
        self.cluster.processes.kill("b-bypass")
        wait_until(lambda: all(self.versions(node) for node in "ab") and not self._taints(), "nodes with inventories")
        self._before = self._states()

    def stop(self) -> None:
        for pid in self._shims.values():
            os.kill(pid, signal.SIGTERM)
        self.cluster.stop()
        for each in self._notified.values():
            each.close()
        # A runtime that was killed, because it took too long on a busy machine, leaves those of a failed test.
        for node in self.cluster.nodes:
            for netns in (self.cluster.layout(node).containerd / "netns").glob("*"):
                subprocess.run(("umount", "--lazy", netns), capture_output=True, check=False)

    @property
    def api(self) -> Api:
        return Api.of(self.cluster.kubeconfig)

    def versions(self, node: str) -> Mapping[str, str]:
        """Return the versions in a node's inventory."""
        annotations = self.api.request("GET", f"/api/v1/nodes/{node}")["metadata"].get("annotations", {})
        versions: Mapping[str, str] = json.loads(annotations.get(names.INVENTORY, "{}")).get("programs", {})
        return versions

    def apply(self, *, is_earlier: bool) -> None:
        """Apply a release's manifests, and restart the advertisers, whose namespace and account differ."""
        manifests = (self._earlier.manifests,) if is_earlier else ()
        accounts = Accounts(self.cluster.kubeconfig, *manifests)
        accounts.apply(("rates",))
        for node in self.cluster.nodes:
            accounts.kubeconfig("advertiser", node)
            self.replace(f"{node}-advertiser", is_earlier=node in self._earlier_advertisers)

    def replace(self, name: str, *, is_earlier: bool, is_killed: bool = False) -> None:
        """Replace a program by that of a release; a shim hands over, so that no call fails, unless it is killed."""
        environment = {**_BUFFERED, **(self._earlier.environment if is_earlier else {})}
        processes = self.cluster.processes
        if name.endswith("-advertiser"):
            node = {name.removesuffix("-advertiser")}
            self._earlier_advertisers = (
                self._earlier_advertisers | node if is_earlier else self._earlier_advertisers - node
            )
        if name.endswith("-shim") and not is_killed:
            self._take_over(name, environment)
        else:
            if (pid := self._shims.pop(name, None)) is not None:
                os.kill(pid, signal.SIGKILL)
            else:
                processes.kill(name, signal.SIGKILL if is_killed else signal.SIGTERM)
            processes.start(name, processes.command(name), environment)

    def _take_over(self, name: str, environment: Mapping[str, str]) -> None:
        processes, node = self.cluster.processes, name.removesuffix("-shim")
        taking = f"{name}-taking"
        processes.start(taking, [*processes.command(name), "--take-over"], environment)
        pid = self._notified[node].main_pid()
        processes.finish(taking)
        if name in self._shims:
            os.kill(self._shims[name], signal.SIGTERM)
        else:
            processes.kill(name, signal.SIGTERM)
        self._shims[name] = pid

    def add_pod(self, name: str, node: str, *interfaces: Mapping[str, object]) -> None:
        """Create a pod and wait until it runs on the node."""
        self.request_pod(name, node, *interfaces)
        self.await_pod(name)

    def request_pod(self, name: str, node: str, *interfaces: Mapping[str, object]) -> None:
        pod = DemoPod(name, "Running", "", {names.REQUEST: json.dumps(interfaces or [{}])}, node=node)
        self.api.request("POST", PODS, pod.manifest())

    def await_pod(self, name: str) -> None:
        wait_until(lambda: check.is_running(self.api.pods()[name]), f"pod {name} runs")

    def delete_pod(self, name: str) -> None:
        self.api.request("DELETE", f"{PODS}/{name}")

    def change_rates(self, pod: str, min_mbps: int, max_mbps: int) -> None:
        """Change the rates of a running pod with one VF, and wait until its NIC has them."""
        request = json.dumps([{"min_tx_rate": min_mbps, "max_tx_rate": max_mbps}])
        self.api.request("PATCH", f"{PODS}/{pod}", {"metadata": {"annotations": {names.REQUEST: request}}})
        wait_until(lambda: self.rates(pod) == (min_mbps, max_mbps), f"rates of pod {pod}")

    def rates(self, pod: str) -> tuple[int, int]:
        """Return the rates in Mb/s that the NIC has for the first VF of a pod."""
        found = self.api.pods()[pod]
        (vf, *_) = (check.assignment(found) or {})["vfs"]
        return hosts.rates(self.cluster.layout(found["spec"]["nodeName"]), vf["pf"], vf["vf"])

    def printed(self, *, is_earlier: bool) -> str:
        """Return what `kubectl mooring pods` of a release prints."""
        arguments = ("pods", "--kubeconfig", str(self.cluster.kubeconfig))
        if is_earlier:
            return self._earlier.run("import sys\nfrom cli.__main__ import main\nsys.exit(main())", *arguments)
        command = (sys.executable, "-m", "cli", *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def given_once(self) -> check.Verdict:
        """Return whether the ledger has each VF of a running pod as that pod's."""
        given, _ = check.look(self.cluster, self.api.pods())
        return check.given_once(given)

    def exactly_applied(self) -> check.Verdict:
        """Return whether every running pod has the VFs, rates and devices of its assignment."""
        given, views = check.look(self.cluster, self.api.pods())
        return check.exactly_applied(given, views, [])

    def delete_all(self) -> check.Verdict:
        """Delete all pods; return whether every VF is back in its original state."""
        self.api.delete_pods()
        wait_until(lambda: not self.api.pods(), "no pods")
        wait_until(lambda: check.given_back(self._before, self._states()).held, "every VF back")
        return check.given_back(self._before, self._states())

    def _states(self) -> dict[str, hosts.HostState]:
        return {node: hosts.state(self.cluster.layout(node)) for node in self.cluster.nodes}

    def _taints(self) -> list[Any]:
        return [taint for node in self.api.items("/api/v1/nodes") for taint in node["spec"].get("taints") or ()]


class _Notified:
    """What systemd would get from a shim: the process that owns the shim's socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(90)

    def main_pid(self) -> int:
        """Wait for the next main process, and return its process id."""
        while not (said := self._socket.recv(256)).startswith(b"MAINPID="):
            pass
        return int(said.removeprefix(b"MAINPID="))

    def close(self) -> None:
        self._socket.close()
