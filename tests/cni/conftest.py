"""A simulated host and a pod's network namespace beside it: the real program, with the VF table for its VF settings."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from devcluster.hosts.chain import composed_cni
from devcluster.hosts.layout import Layout
from mooring.records.node_offer import NAME
from tests.support.folders import texts
from tests.support.offers import node_offer
from tests.support.polling import wait_until
from tests.support.simulated_nics import MLX5, Nic

NODE = "cnihost"
PATIENCE_S = 90


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """A host of devcluster's and a pod's network namespace beside it."""

    layout: Layout
    pod: str
    nic: Nic = MLX5

    def enter(self, *command: str, timeout_s: float = 180, **options: Any) -> "subprocess.CompletedProcess[str]":
        nsenter = ("nsenter", f"--net={self.layout.netns}", *command)
        return subprocess.run(nsenter, capture_output=True, text=True, check=False, timeout=timeout_s, **options)

    def environment(
        self,
        command: str,
        uid: str = "u1",
        container: str = "c1",
        netns: str | None = None,
        ifname: str = "eth0",
        namespace: str = "ns",
    ) -> dict[str, str]:
        return {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": f"/run/netns/{self.pod}" if netns is None else netns,
            "CNI_IFNAME": ifname,
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=p;K8S_POD_UID={uid}",
            "CNI_PATH": str(self.layout.cni_bin),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        }

    def conf(self, annotations: dict[str, str] | None = None, **fields: object) -> dict[str, Any]:
        conflist = json.loads((self.layout.cni_conf / "10-mooring.conflist").read_text())
        own: dict[str, Any] = {**conflist["plugins"][1], "cniVersion": "1.0.0", "name": "mooring"}
        previous = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": []}
        return (
            own | {"prevResult": previous, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations}} | fields
        )

    def call(self, command: str, conf: dict[str, Any] | None = None, **environment: Any) -> dict[str, Any]:
        """Run the executable that a runtime would run; return its exit status and answer."""
        done = self.enter(
            str(self.layout.cni_bin / "mooring-cni"),
            input=json.dumps(conf or self.conf()),
            env=self.environment(command, **environment),
        )
        return {"status": done.returncode, **(json.loads(done.stdout) if done.stdout else {})}

    def begin(self, command: str, conf: dict[str, Any] | None = None, **environment: Any) -> "subprocess.Popen[str]":
        """Start the executable that a runtime would run, and leave it running; its standard input is closed."""
        program = ("nsenter", f"--net={self.layout.netns}", str(self.layout.cni_bin / "mooring-cni"))
        process = subprocess.Popen(
            program,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=self.environment(command, **environment),
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(conf or self.conf()))
        process.stdin.close()
        return process

    @contextmanager
    def served(self, *more: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the warm server, which the executable then finds; ``more`` are options of its own."""
        layout = self.layout
        places = {"--socket": layout.run / "cni.sock", "--state": layout.state, "--run": layout.run}
        options = [
            str(word) for pair in {**places, "--sysfs": layout.sys, "--node-name": NODE}.items() for word in pair
        ]
        log = (layout.home / "server.log").open("wb")
        command = ("nsenter", f"--net={layout.netns}", *composed_cni(layout), "serve", *options, *more)
        with log, subprocess.Popen(command, stderr=log) as server:
            try:
                wait_until(lambda: (layout.run / "cni.sock").exists() or server.poll() is not None)
                yield server
            finally:
                server.send_signal(signal.SIGTERM)
                assert server.wait(PATIENCE_S) in (0, -signal.SIGKILL)

    def log(self) -> list[dict[str, Any]]:
        """Return what the warm server has logged."""
        return [json.loads(line) for line in (self.layout.home / "server.log").read_text().splitlines()]

    def record(self, *vfs: dict[str, Any], uid: str = "u1") -> None:
        """Write what the CRI shim would have written."""
        entries = [{"link": self.nic.link, "network": "default", **vf} for vf in vfs]
        assignment = {"v": 1, "uid": uid, "node": NODE, "vfs": entries}
        path = self.layout.state / "pods" / f"{uid}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"v": 1, "pod": f"ns/{uid}", "assignment": assignment}))

    def offer(self, **terms: object) -> None:
        """Leave an offer as `init` does: it allows everything but for these terms of both PFs."""
        (self.layout.state / NAME).write_text(node_offer(**terms))

    def links(self, *enter: str) -> dict[str, Any]:
        shown = self.enter(*enter, "ip", "-d", "-j", "link", "show").stdout
        kept = ("ifname", "address", "mtu", "flags", "altnames")
        return {link["ifname"]: {name: link.get(name) for name in kept} for link in json.loads(shown)}

    def in_pod(self) -> dict[str, Any]:
        return self.links("nsenter", f"--net=/run/netns/{self.pod}")

    def ledger(self) -> dict[str, Any]:
        return {stem: json.loads(text) for stem, text in texts(self.layout.state / "vfs").items()}

    def vf_addresses(self) -> dict[str, list[str]]:
        """Return the addresses of each of the pod's VFs by interface; a chain's result does not list them."""
        return {entry["ifname"]: entry.get("addresses", []) for entry in self.ledger().values()}

    def table(self) -> Any:
        return json.loads(self.layout.vftable.read_text())

    def addresses(self) -> list[str]:
        return sorted(path.name for path in self.layout.ipam.rglob("10.*") if path.is_file())

    def everything(self) -> tuple[object, ...]:
        """Return what must be as before; a switch port (``_``), which a real host does not see, may be made again."""
        links = {name: link for name, link in self.links().items() if "_" not in name}
        return (links, self.table(), self.ledger(), self.addresses())


@pytest.fixture
def other_netns() -> Iterator[str]:
    """The path of a second pod's namespace."""
    name = "mooring-cni-pod2"
    subprocess.run(("ip", "netns", "add", name), check=True)
    yield f"/run/netns/{name}"
    subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)


@pytest.fixture(scope="module")
def nic(request: pytest.FixtureRequest) -> Nic:
    """The NIC of the simulated host: that of `ON_EACH`, else mlx5 Ethernet."""
    found: Nic = getattr(request, "param", MLX5)
    return found


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, nic: Nic) -> Iterator[Layout]:
    """One simulated host for all tests here on one NIC; each leaves it as it was, or fails."""
    root = tmp_path_factory.mktemp("hosts")
    options = ("--root", str(root), "--node", NODE, "--vfs", "4", "--nic", nic.personality)
    process = subprocess.Popen((sys.executable, "-m", "devcluster.hosts", "up", *options))
    layout = Layout.at(root, NODE)
    wait_until(lambda: layout.description.exists() or process.poll() is not None)
    assert process.poll() is None
    yield layout
    process.terminate()
    assert process.wait(90) == 0


@pytest.fixture(scope="module")
def server(hosts: Layout, nic: Nic) -> Iterator[None]:
    """Have all calls of a file's tests answered by one server, as on a node, and not each by a program that starts."""
    with SimulatedHost(hosts, "", nic).served("--reconcile-s", "3600"):
        yield


@pytest.fixture
def host(hosts: Layout, nic: Nic) -> Iterator[SimulatedHost]:
    """The host with a fresh pod namespace; afterwards nothing may be left of what the test did."""
    pod = "mooring-cni-pod"
    subprocess.run(("ip", "netns", "add", pod), check=True)
    found = SimulatedHost(hosts, pod, nic)
    found.offer()
    before = found.everything()
    yield found
    # A program's start costs as much as many a test.
    if found.addresses() or any((hosts.state / "vfs").glob("*")):
        found.call("DEL")
    subprocess.run(("ip", "netns", "delete", pod), check=False, capture_output=True)
    for records in ("pods", "rates"):
        shutil.rmtree(hosts.state / records, ignore_errors=True)
    assert found.everything() == before
