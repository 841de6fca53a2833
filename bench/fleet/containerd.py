"""Hosts of the fleet with a real containerd: the DaemonSet's own pods install them, from a release's images.

They are hosts of `devcluster.without_mooring`, with a stand-in for systemd and the kubelet, and the whole of Mooring's
manifests. Their pods with VFs are real: placed by the scheduler, with devices by the shim.
"""

import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fleet.agents import Desired
from cli.node.fleet.nodes import LABEL
from devcluster.api import PODS, Api
from devcluster.images import registry
from devcluster.without_mooring.cluster import ClusterWithoutMooring
from mooring.records import node_install
from mooring.records.handed_offer import NEXT
from mooring.records.node_install import NodeInstall, read_node_install

MANIFESTS = Path(__file__).parents[2] / "manifests"
_DAEMONSET = "/apis/apps/v1/namespaces/mooring-node/daemonsets/mooring-node-installer"
_ADVERTISERS = "/apis/apps/v1/namespaces/mooring-node/daemonsets/mooring-advertiser"
_SCHEDULERS = "/apis/apps/v1/namespaces/mooring-system/deployments/mooring-scheduler"
_INSTALLERS = "/api/v1/namespaces/mooring-node/pods"
_REGISTRY, _INSTALLER = "registry.example", "mooring-node-installer"
_OVERLAY = """\
resources: [../../base]
components: [../../components/node-installer]
images:
  - {{name: mooring-scheduler, newName: {registry}/mooring-scheduler, newTag: {tag}}}
  - {{name: mooring-advertiser, newName: {registry}/mooring-advertiser, newTag: {tag}}}
  - {{name: mooring-node-installer, newName: {registry}/mooring-node-installer, newTag: {tag}}}
generatorOptions: {{disableNameSuffixHash: true}}
configMapGenerator:
  - {{name: mooring-offer, namespace: mooring-node, files: [offer.yaml]}}
patches:
  - target: {{kind: DaemonSet, name: mooring-node-installer}}
    patch: '[{{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--at-once={at_once}"}}]'
"""
_OFFER = "v: 1\npfs:\n  - network: rail0\n"
# What goes on while Mooring is there and is not Mooring's: images, pods' own data, logs, sockets.
_OTHERS = ("var/lib/containerd", "var/lib/kubelet/pods", "var/lib/cni", "var/log", "var/run")
_OWN = ("etc", "opt", "root", "srv", "var")
_START_S, _POLL_S = 300.0, 0.5
# What init takes to end after it has taken an offer, on a busy machine.
_INIT_S = 5.0
# rdma_cm and the VF's uverbs.
_DEVICES = 2


def release_name(folder: Path) -> str:
    """Return the name that a release of a folder of `./run release` has on a node."""
    (archive,) = folder.glob("mooring-node-*-linux-amd64.tar.gz")
    with tarfile.open(archive) as opened:
        first = opened.next()
        assert first is not None, f"{archive} is empty"
        return first.name.partition("/")[0].removeprefix("mooring-")


@dataclass(slots=True)
class ContainerdHost:
    """One of these hosts; it runs as soon as the cluster does."""

    small_disk, large_disk = 16 << 20, 2 << 30
    offer = _OFFER

    name: str
    cluster: ClusterWithoutMooring
    api: Api
    # The pods that hold VFs all the time, with the ids of their containers, by uid.
    held: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Return the root folder with what is mounted there, while the host is up."""
        host = self.cluster.host(self.name)
        with suppress(OSError, IndexError, KeyError):
            return Path(f"/proc/{host.process_1(self.cluster.processes.pid(self.name))}/root")
        return host.layout.root

    def installation(self) -> NodeInstall | None:
        """Return what the installer has reported for the advertiser."""
        with suppress(OSError, ValueError):
            return read_node_install((self.root / "run/mooring" / node_install.NAME).read_text())
        return None

    def has_begun(self) -> bool:
        """Return whether anything of an installation is there."""
        return (self.root / "opt/mooring/versions").exists()

    def break_disk(self) -> None:
        """Give the host's programs a disk of their own, on which no release fits."""
        mount = f"mount -t tmpfs -o size={self.small_disk} tmpfs /opt"
        self._run(f"cp -a /opt /srv/opt; {mount}; cp -a /srv/opt/. /opt; rm -r /srv/opt")

    def resize_disk(self, disk_bytes: int) -> None:
        self._run(f"mount -o remount,size={disk_bytes} /opt")

    def hand_over(self, offer: str) -> None:
        """Give the host another offer than the cluster's, as the advertiser's init container does."""
        path = self.root / "var/lib/mooring" / NEXT
        (new := path.with_suffix(".new")).write_text(offer)
        new.replace(path)

    def await_init(self) -> None:
        """Wait until init has taken the offer that was handed over, or has rejected it."""
        end = time.monotonic() + _START_S
        while (self.root / "var/lib/mooring" / NEXT).exists():
            assert time.monotonic() < end, f"{self.name}: init does not take the offer"
            time.sleep(_POLL_S)
        time.sleep(_INIT_S)

    def hold_vfs(self, count: int) -> None:
        """Start pods with VFs, and remember their containers."""
        names = [f"{self.name}-{number}" for number in range(count)]
        for name in names:
            self.add_pod(name)
        for name in names:
            pod = self.await_pod(name)
            self.held[pod["metadata"]["uid"]] = _container(pod)

    def add_pod(self, name: str) -> None:
        metadata = {"name": name, "annotations": {"mooring.dev/interfaces": '[{"network":"rail0","min_tx_rate":1000}]'}}
        container = {
            "name": "main",
            "image": "busybox",
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
        }
        spec = {
            "schedulerName": "mooring",
            "nodeSelector": {"kubernetes.io/hostname": self.name},
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        self.api.request("POST", PODS, {"metadata": metadata, "spec": spec})

    def await_pod(self, name: str) -> dict[str, Any]:
        """Return a pod as soon as it runs with the devices of its VF."""
        end = time.monotonic() + _START_S
        while True:
            pod = self.api.pods()[name]
            if pod["status"].get("phase") == "Running" and (devices := self._devices(_container(pod))):
                assert len(devices) == _DEVICES, f"pod {name} has the devices {devices}"
                return pod
            assert time.monotonic() < end, f"pod {name} does not run: {json.dumps(self.api.events_of(name)[-3:])}"
            time.sleep(_POLL_S)

    def delete_pod(self, name: str) -> None:
        """Delete a pod, and wait until it is gone."""
        self.api.request("DELETE", f"{PODS}/{name}")
        end = time.monotonic() + _START_S
        while name in self.api.pods():
            assert time.monotonic() < end, f"pod {name} does not end"
            time.sleep(_POLL_S)

    def await_held(self) -> None:
        """Wait until the pods that hold VFs run again, as after a reboot."""
        pods = {pod["metadata"]["uid"]: name for name, pod in self.api.pods().items()}
        for uid in self.held:
            self.held[uid] = _container(self.await_pod(pods[uid]))

    def lost_pods(self) -> Sequence[str]:
        """Return the pods that hold VFs and whose containers have ended, or lack their devices."""
        containers = {pod["metadata"]["uid"]: _container(pod) for pod in self.api.pods().values()}
        return [
            uid
            for uid, container in self.held.items()
            if containers.get(uid) != container or len(self._devices(container)) != _DEVICES
        ]

    def ledger(self) -> Mapping[str, tuple[str, int]]:
        """Return each held pod's entry, and its time of change."""
        paths = (self.root / "var/lib/mooring/vfs").glob("*.json")
        texts = {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in paths}
        return {name: entry for name, entry in texts.items() if json.loads(entry[0]).get("uid") in self.held}

    def release_vfs(self) -> None:
        """Delete the pods with VFs, and wait until the VFs are back."""
        for name, pod in self.api.pods().items():
            if pod["metadata"]["uid"] in self.held:
                self.delete_pod(name)
        end = time.monotonic() + _START_S
        while any((self.root / "var/lib/mooring/vfs").glob("*.json")):
            assert time.monotonic() < end, f"{self.name}: VFs do not come back"
            time.sleep(_POLL_S)
        self.held = {}

    def kubelet_starts(self) -> int:
        log = self.root / "var/log/journal/kubelet.service.log"
        return log.read_text(errors="replace").count("node registered")

    def active_units(self) -> set[str]:
        """Return what still runs of Mooring."""
        return {line for line in self._run("ps -e -o args").splitlines() if "/opt/mooring/" in line}

    def tree(self) -> Mapping[str, str]:
        """Return mode and content of everything that lasts over a boot, and the settings of the NIC's VFs."""
        root = self.root
        found = {"VF settings": json.dumps(self._vf_settings(), sort_keys=True)}
        for own in _OWN:
            for folder, folders, files in os.walk(root / own):
                names = {name: str(Path(folder, name).relative_to(root)) for name in (*folders, *files)}
                folders[:] = [name for name in folders if names[name] not in _OTHERS]
                found |= {name: _content(root / name) for name in names.values() if name not in _OTHERS}
        return found

    def kill_installer(self) -> None:
        """Kill the installer with SIGKILL: its container, or (as a node that is drained by force) with its pod."""
        for process in self._installers():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _installers(self) -> Iterator[int]:
        flag = f"--node-name={self.name}".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"fleet" in words and flag in words:
                    yield int(path.parent.name)

    def _vf_settings(self) -> object:
        return json.loads(self.cluster.host(self.name).layout.vftable.read_text())["pfs"]

    def _devices(self, container: str) -> Sequence[str]:
        """Return the devices of RDMA in a container, none if it does not run.

        By `ctr`: a client of gRPC in this process would not survive its forks.
        """
        ctr = (str(self.cluster.runtimes[self.name] / "ctr"), "--namespace", "k8s.io")
        look = ("tasks", "exec", "--exec-id", f"look-{time.monotonic_ns()}", container, "ls", "/dev/infiniband")
        done = self.cluster.on(self.name, *ctr, *look)
        return done.stdout.split() if done.returncode == 0 else []

    def _run(self, script: str) -> str:
        done = self.cluster.on(self.name, "/bin/sh", "-c", script)
        assert done.returncode == 0, f"{self.name}: {script}: {done.stdout}{done.stderr}"
        return done.stdout


@dataclass(slots=True)
class ContainerdFleet:
    """The hosts, their cluster, and the DaemonSet whose pods install them; ``releases`` are folders by tag.

    ``runtimes`` are folders of programs, by the names of the hosts.
    """

    root: Path
    runtimes: Mapping[str, Path]
    releases: Mapping[str, Path]
    kills: int = 0
    cluster: ClusterWithoutMooring = field(init=False)
    hosts: dict[str, ContainerdHost] = field(default_factory=dict)
    api: Api = field(init=False)

    def start(self) -> None:
        """Start hosts and API server, without Mooring."""
        self.cluster = ClusterWithoutMooring(self.root, list(self.runtimes), None, self.runtimes)
        self.cluster.start(lambda text: print(f"          start {text}", flush=True))
        for tag, folder in self.releases.items():
            for archive in folder.glob("*.oci.tar"):
                registry.add(self.cluster.registry, archive, tag)
        self.api = Api.of(self.cluster.kubeconfig)
        self.hosts = {name: ContainerdHost(name, self.cluster, self.api) for name in self.runtimes}

    def stop(self) -> None:
        self.cluster.stop()

    def roll_out(self, desired: Desired) -> None:
        """Apply the manifests, or change the DaemonSet that they have made."""
        if not (self.root / "manifests").exists():
            self._apply(desired)
        elif desired.removes:
            # As docs/install.md has it.
            for path in (_SCHEDULERS, _ADVERTISERS):
                self.api.request("DELETE", path)
            self._change_template(lambda container: container["args"].append("--mode=remove"))
        else:
            image = f"{_REGISTRY}/{_INSTALLER}:{desired.tag}"
            self._change_template(lambda container: container.update(image=image))

    def _apply(self, desired: Desired) -> None:
        shutil.copytree(MANIFESTS, manifests := self.root / "manifests")
        (ours := manifests / "overlays/fleet").mkdir()
        overlay = _OVERLAY.format(registry=_REGISTRY, tag=desired.tag, at_once=desired.at_once)
        (ours / "kustomization.yaml").write_text(overlay)
        (ours / "offer.yaml").write_text(_OFFER)
        command = ["kubectl", "--kubeconfig", str(self.cluster.kubeconfig), "apply", "-k", str(ours)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        for name in self.hosts:
            self.api.request("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {LABEL: ""}}})

    def kill(self, name: str, *, with_pod: bool) -> None:
        """Kill a node's installer; its pod's container is started again, or the DaemonSet makes another pod."""
        self.kills += 1
        self.hosts[name].kill_installer()
        if with_pod:
            for pod in self.api.items(_INSTALLERS):
                is_installer = pod["metadata"]["name"].startswith(_INSTALLER)
                if is_installer and pod["spec"].get("nodeName") == name:
                    with suppress(urllib.error.HTTPError):
                        self.api.request("DELETE", f"{_INSTALLERS}/{pod['metadata']['name']}")

    def _change_template(self, change: Any) -> None:
        daemonset = self.api.request("GET", _DAEMONSET)
        containers: Sequence[dict[str, Any]] = daemonset["spec"]["template"]["spec"]["containers"]
        change(containers[0])
        self.api.request("PATCH", _DAEMONSET, {"spec": {"template": {"spec": {"containers": containers}}}})


def _container(pod: Mapping[str, Any]) -> str:
    """Return the id of a pod's container, as its status has it."""
    ids = [str(status.get("containerID", "")) for status in pod["status"].get("containerStatuses") or ()]
    return "".join(ids).removeprefix("containerd://")


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    with suppress(UnicodeDecodeError):
        return path.read_text() if path.is_file() else "folder"
    return "binary"
