"""The installation page, typed as it stands on a cluster without Mooring: installed, used, broken, mended, removed.

What is typed comes from the pages, in their order; a command that is not there is only one that breaks something, or
that looks. Nothing is replaced but what needs a network: `pip wheel` fetches, so the wheelhouse is made of what is
installed here. The cluster's registry has the release's images, so none is copied there.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster.demo import hosts
from devcluster.without_mooring.cluster import ClusterWithoutMooring
from tests.cli import wheelhouse
from tests.docs.pages import ROOT, commands, files, way_out
from tests.support.built_release import built_release
from tests.support.polling import wait_until

NODES = ("n1", "n2")
INSTALL, QUICK_START = "install.md", "quick-start.md"
# The way from nothing to the first pod, without the hardware.
WAY, MOST_COMMANDS = ("The images", "The cluster's part", "The first pod"), 8
EXTRAS = ("scheduler", "advertiser", "cri-shim", "cni", "cli")
# What goes on while Mooring is there and is not Mooring's: pods' own data, images, logs, sockets, what runs.
_OTHERS = (
    str(Path(sys.base_prefix)),
    "/var/lib/containerd",
    "/var/lib/kubelet/pods",
    "/var/lib/cni",
    "/var/log",
    "/run",
    str(Path.home() / ".cache"),
)
_KINDS = (
    "namespaces,deployments,daemonsets,replicasets,pods,serviceaccounts,configmaps,services,poddisruptionbudgets,roles,"
    "rolebindings,clusterroles,clusterrolebindings,flowschemas,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings"
)


@dataclass(frozen=True, slots=True)
class Person:
    """A user with a terminal in a copy of the repository, and a way onto each host."""

    cluster: ClusterWithoutMooring
    folder: Path

    def type(self, command: str, *, fails: bool = False) -> str:
        """Return a command's output in that terminal."""
        return self._run(["/bin/sh", "-c", command], command, fails=fails)

    def type_on(self, node: str, command: str, *, fails: bool = False) -> str:
        """Return a command's output on a host; where the page has n1, this host is meant."""
        said = command.replace("n1", node)
        return self._run(
            [str(self.cluster.commands / "on"), node, "/bin/sh", "-c", said], f"{node}: {said}", fails=fails
        )

    def items(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.type(f"kubectl get {kind} -A -o json"))["items"]
        return found

    def _run(self, command: list[str], shown: str, *, fails: bool) -> str:
        home = self.folder / "home"
        path = f"{home}/.local/bin:{self.cluster.commands}:{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "PATH": path, "HOME": str(home)}
        environment["MOORING_DEVCLUSTER"] = str(self.cluster.root)
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        print(f"{time.monotonic() - began:6.1f} s  {shown}")
        assert (done.returncode != 0) == fails, f"{shown}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """A cluster without Mooring, and a copy of what the commands need of the repository."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    (tmp_path / "home").mkdir()
    # A socket's path has 108 characters at the most.
    cluster = ClusterWithoutMooring(Path(tempfile.mkdtemp(prefix="mooring-", dir="/tmp")), NODES, built_release())
    try:
        cluster.start()
        yield Person(cluster, tmp_path)
    finally:
        cluster.stop()
        shutil.rmtree(cluster.root, ignore_errors=True)


def test_the_first_pod_takes_at_most_eight_commands_and_none_on_a_node() -> None:
    """All commands of the page's sections count, the one that only looks included."""
    typed = [command for heading in WAY for command in commands(INSTALL, heading)]
    assert len(typed) <= MOST_COMMANDS, typed
    own = ("./run release", "for image in scheduler advertiser node-installer; do skopeo copy ", "kubectl ")
    assert not [command for command in typed if not " ".join(command.split()).startswith(own)]


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.containerd
@pytest.mark.wheels
@pytest.mark.kubectl
@pytest.mark.recent_kubectl
@pytest.mark.timeout(1800)
def test_mooring_is_installed_used_broken_mended_and_removed_by_the_pages(person: Person) -> None:
    """Every command of the page has the effect that the page states; each way to remove works, and leaves nothing."""
    wait_until(lambda: len(_ready(person)) == len(NODES), "the nodes are Ready")
    before = _everything(person)
    began = time.monotonic()
    _install(person)
    _run_the_first_pod(person)
    print(f"{time.monotonic() - began:6.1f} s  from the label to the first pod")
    _install_kubectl_mooring(person)
    _look_at_the_first_pod(person)
    _lose_the_chain(person)
    _stop_the_shim(person)
    _lose_the_scheduler(person)
    _uninstall(person)
    after = _everything(person)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == set()


def _install(person: Person) -> None:
    overlay, offer, addresses = files(INSTALL, "The cluster's part")
    (ours := person.folder / "manifests/overlays/ours").mkdir()
    own = {f"cni.{node}.json": addresses.replace("10.56.1.", f"10.56.{at}.") for at, node in enumerate(NODES, start=1)}
    for name, text in own.items():
        (ours / name).write_text(text)
    (ours / "kustomization.yaml").write_text(overlay.replace("cni.n1.json", ", ".join(own)))
    (ours / "offer.yaml").write_text(offer)
    said = [person.type(command.replace(" n3 ", " ")) for command in commands(INSTALL, "The cluster's part")][-1]
    offered = {tuple(line.split("\t")) for line in said.splitlines()}
    assert offered == {(node, f"enp4s0f{pf}", "rail0", "100000", "0-7") for node in NODES for pf in (0, 1)}


def _run_the_first_pod(person: Person) -> None:
    (manifest,) = files(QUICK_START, "Your first pod")
    (person.folder / "first.yaml").write_text(manifest)
    for command in commands(INSTALL, "The first pod"):
        person.type(command)


def _install_kubectl_mooring(person: Person) -> None:
    wheelhouse.make(person.folder / "wheelhouse", EXTRAS)
    said = [person.type(command) for command in commands(INSTALL, "kubectl mooring")][-1]
    assert "no problems found in the API" in said


def _look_at_the_first_pod(person: Person) -> None:
    apply, *looks, _ = commands(QUICK_START, "Your first pod")
    person.type(apply)
    wait_until(lambda: _runs(person, "first"), "the first pod runs")
    said = [person.type(look) for look in looks]
    node = str(_pod(person, "first")["spec"]["nodeName"])
    assert f"Successfully assigned default/first to {node}" in said[1]
    assert said[2].count('"pci"') == said[3].count("\nfirst ") == 2
    refused = person.type("kubectl annotate --overwrite pod first mooring.dev/assignment={}", fails=True)
    assert "'admin' is not Mooring's scheduler, which alone sets, changes or removes it" in refused
    assert person.type_on(node, "/opt/mooring/bin/mooring-cni show").count("default/first") == 2
    assert {rates for pf in ("enp4s0f0", "enp4s0f1") for rates in _rates(person, node, pf)} == {(5000, 10000)}
    runtime = hosts.Runtime(person.cluster.socket(node))
    (container,) = runtime.containers(_pod(person, "first")["metadata"]["uid"]).values()
    devices = runtime.devices(container)
    assert len(devices) == 3
    assert "rdma_cm" in devices
    assert "devices injected" in person.type_on(node, "journalctl -u mooring-cri-shim")
    for program in (
        "mooring-system logs deployment/mooring-scheduler",
        "mooring-node logs daemonset/mooring-advertiser",
    ):
        assert "forbidden" not in person.type(f"kubectl -n {program}").lower()


def _lose_the_chain(person: Person) -> None:
    """A pod with VFs is refused by name while the configuration is gone; `check` names it, `install` repairs it."""
    person.type_on("n1", "rm /etc/cni/net.d/00-n-mooring.conflist")
    _apply_on(person, "second", "n1")
    says = "the CNI plugin mooring-cni did not run"
    wait_until(lambda: says in person.type("kubectl describe pod second"), "the pod says what is wrong")
    assert not _runs(person, "second")
    assert "00-n-mooring.conflist: missing" in _checked(person, "n1")
    person.type_on("n1", f"/opt/mooring/bin/{way_out('messages.txt', 'missing')}")
    # As the shim's entry has it: that sandbox was made without the VF.
    person.type("kubectl delete pod second --grace-period=1")
    _apply_on(person, "second", "n1")
    wait_until(lambda: _runs(person, "second"), "the pod runs once the chain is back")


def _stop_the_shim(person: Person) -> None:
    """The node stays Ready, past the shim, until it is started again; what runs goes on."""
    person.type_on("n1", "systemctl stop mooring-cri-shim")
    wait_until(lambda: "shim-bypass.json: bypassed since" in _checked(person, "n1"), "the shim is bypassed", 60)
    assert "mooring-cri-shim.service: inactive" in _checked(person, "n1")
    assert _ready(person) == set(NODES)
    start = way_out("messages.txt", "inactive")
    person.type_on("n1", f"{start} mooring-cri-shim")
    check = "/opt/mooring/bin/mooring-node check; :"
    wait_until(lambda: "bypassed since" not in person.type_on("n1", check), "the shim serves", 60)
    assert _ready(person) == set(NODES)
    assert _runs(person, "second")


def _lose_the_scheduler(person: Person) -> None:
    """Pods wait; doctor prints the reason; the page's command brings the schedulers back."""
    person.type("kubectl -n mooring-system scale deployment mooring-scheduler --replicas=0")
    wait_until(
        lambda: "no scheduler leads: " in person.type("kubectl mooring doctor; :"), "doctor misses the scheduler"
    )
    _apply_on(person, "third", "n2")
    for command in commands(INSTALL, "The cluster's part")[1:2]:
        person.type(command)
    wait_until(lambda: _runs(person, "third"), "the pod runs once there are schedulers", 90)


def _uninstall(person: Person) -> None:
    person.type("kubectl delete pods --all --grace-period=1")
    wait_until(lambda: all(not _ledger(person, node) for node in NODES), "the VFs are given back")
    for command in commands(INSTALL, "Uninstall"):
        person.type(command)
    wait_until(
        lambda: not any("mooring" in str(one["metadata"]) for one in person.items("pods")), "Mooring's pods are gone"
    )


def _apply_on(person: Person, name: str, node: str) -> None:
    """Apply the first pod under another name, on one node."""
    text = (person.folder / "first.yaml").read_text().replace("name: first", f"name: {name}")
    text = text.replace("spec:\n", f"spec:\n  nodeSelector: {{kubernetes.io/hostname: {node}}}\n")
    (person.folder / f"{name}.yaml").write_text(text)
    person.type(f"kubectl apply -f {name}.yaml")


def _checked(person: Person, node: str) -> str:
    return person.type_on(node, "/opt/mooring/bin/mooring-node check", fails=True)


def _pod(person: Person, name: str) -> dict[str, Any]:
    return next(one for one in person.items("pods") if one["metadata"]["name"] == name)


def _runs(person: Person, name: str) -> bool:
    return str(_pod(person, name)["status"].get("phase")) == "Running"


def _ready(person: Person) -> set[str]:
    return {
        node["metadata"]["name"]
        for node in person.items("nodes")
        for condition in node["status"].get("conditions", ())
        if condition["type"] == "Ready" and condition["status"] == "True"
    }


def _rates(person: Person, node: str, pf: str) -> Iterator[tuple[int, int]]:
    table = json.loads(person.cluster.host(node).layout.vftable.read_text())
    for settings in table["pfs"][pf]["set"].values():
        if "min_tx_rate" in settings:
            yield settings["min_tx_rate"], settings["max_tx_rate"]


def _ledger(person: Person, node: str) -> list[Path]:
    return list((person.cluster.host(node).layout.root / "var/lib/mooring/vfs").glob("*.json"))


def _everything(person: Person) -> dict[str, str]:
    """Return what may change on the hosts and in the API, as far as it is not others', by a name for each thing."""
    found = dict.fromkeys(person.type(f"kubectl get {_KINDS} -A -o name").split(), "object")
    for node in person.items("nodes"):
        about = node["metadata"]
        found[f"node {about['name']}"] = json.dumps([about.get("annotations"), about["labels"], node["spec"]])
    for name in NODES:
        found |= {f"{name} {what}": value for what, value in _host(person, name)}
    return found


def _host(person: Person, node: str) -> Iterator[tuple[str, str]]:
    """Yield every file and folder of a host's own, its VFs' links, and its PFs' settings of the VFs."""
    layout = person.cluster.host(node).layout
    yield "VF settings", json.dumps(json.loads(layout.vftable.read_text())["pfs"], sort_keys=True)
    yield from ((name, str(link)) for name, link in hosts.links(layout.netns).items() if "v" in name)
    for own in ("etc", "opt", "root", "srv", "var"):
        for path in (layout.root / own).rglob("*"):
            name = f"/{path.relative_to(layout.root)}"
            if not name.startswith(_OTHERS):
                yield name, _content(path)


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    with contextlib.suppress(UnicodeDecodeError):
        return path.read_text() if path.is_file() else "folder"
    return "binary"
