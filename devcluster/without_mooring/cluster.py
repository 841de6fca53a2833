"""A cluster on this machine before Mooring is installed: hosts with their own root folders, and a control plane.

Every host runs containerd and a kubelet stand-in as its own services, under a stand-in for systemd. The control plane
is the embedded API server over HTTPS, with RBAC and admission, and the controllers. Nothing here starts a program of
Mooring's or knows where one would be: that is left to the installation.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc

from devcluster.hosts.layout import Layout
from devcluster.hosts.links import run_ip
from devcluster.images import registry
from devcluster.processes import Processes
from devcluster.runtime import containerd
from devcluster.runtime.images import write_images
from devcluster.without_mooring import certificate, etc
from devcluster.without_mooring.root import HostRoot

_PYTHON = (sys.executable, "-m")
STATE = "cluster.json"


@dataclass(slots=True)
class ClusterWithoutMooring:
    """A cluster below ``root``: `start` it, install something, `stop` it.

    Its registry has the images of ``release``, a folder of `./run release`, under the name of every registry. Nodes in
    ``runtimes`` run the containerd of a folder that devcluster/runtime/fetch has printed, the others the installed one.
    """

    root: Path
    nodes: Sequence[str]
    release: Path | None = None
    runtimes: Mapping[str, Path] = field(default_factory=dict)
    processes: Processes = field(init=False)

    def __post_init__(self) -> None:
        self.processes = Processes(self.root / "logs")

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    @property
    def commands(self) -> Path:
        """Return the folder of commands that replace a person's own: `on` for ssh."""
        return self.root / "bin"

    def host(self, node: str) -> HostRoot:
        programs = self.runtimes.get(node)
        return HostRoot(node, Layout.at(self.root, node), None if programs is None else programs.parents[1])

    def start(self, tell: Callable[[str], None] = lambda _text: None) -> None:
        """Start everything; raise StartError with the end of its log for a program that does not start."""
        tell("simulated hosts: network namespaces, PFs, VFs, sysfs")
        self._start_hosts()
        tell("API server, controllers, image registry")
        self._start_control_plane()
        tell("on each host: systemd stand-in, containerd, kubelet stand-in")
        snapshotter = containerd.snapshotter_of(self.root)
        for number, node in enumerate(self.nodes, start=1):
            self._furnish(node, number, snapshotter)
            self.processes.start(node, self.host(node).boot_command())
        for archive in (self._images(), *sorted(self.release.glob("*.oci.tar") if self.release else ())):
            registry.add(self.registry, archive)
        for node in self.nodes:
            self.processes.await_ready(node, partial(containerd.answers, self.runtime(node)))
            path = {"PATH": self._programs(node)}
            containerd.import_images(self.socket(node), snapshotter, self._images(), path)
        self._write_state()
        self._write_commands()

    def reboot(self, node: str, wait: Callable[[], None] = lambda: None) -> None:
        """End a host with all of its processes at once, and boot it; ``wait`` returns when it is to come back."""
        self.processes.kill(node)
        wait()
        boot = (*_PYTHON, "devcluster.hosts", "reboot", "--root", str(self.root), "--node", node)
        subprocess.run(boot, check=True, capture_output=True)
        self._give_addresses(node)
        shutil.rmtree(self.host(node).layout.root / "run")
        (self.host(node).layout.root / "run").mkdir()
        # The API server listens in the namespace of before.
        with contextlib.suppress(KeyError):
            self.processes.kill(f"{node}-relay")
        relay = ("--netns", str(self.host(node).layout.netns), "--listen", ":".join(map(str, etc.API_SERVER)))
        self._start(f"{node}-relay", "devcluster.without_mooring.relay", *relay, "--to", str(self._api_port()))
        self.processes.restart(node)
        self.processes.await_ready(node, partial(containerd.answers, self.runtime(node)))
        self._write_state()

    def stop(self) -> None:
        """End everything: pods first, then the hosts' services, then the hosts."""
        for node in self.nodes:
            with contextlib.suppress(grpc.RpcError):
                containerd.remove_pods(self.runtime(node))
        for node in self.nodes:
            with contextlib.suppress(KeyError, OSError, IndexError):
                os.kill(self.host(node).process_1(self.processes.pid(node)), signal.SIGTERM)
        self.processes.stop()

    def on(self, node: str, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on a host, as root there."""
        entered = self.host(node).enter(self.processes.pid(node), *command)
        return subprocess.run(entered, capture_output=True, text=True, check=False)

    def socket(self, node: str) -> Path:
        """Return the path of a host's runtime socket from outside."""
        return self.host(node).layout.root / etc.CONTAINERD.lstrip("/")

    def runtime(self, node: str) -> str:
        return f"unix://{self.socket(node)}"

    def _start_hosts(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        named = [word for node in self.nodes for word in ("--node", node)]
        self._start("hosts", "devcluster.hosts", "up", "--without-mooring", "--root", str(self.root), *named)
        ready = [self.host(node).layout.description for node in self.nodes]
        self.processes.await_ready("hosts", lambda: all(path.exists() for path in ready))
        for node in self.nodes:
            self._give_addresses(node)

    def _give_addresses(self, node: str) -> None:
        own = (etc.address(self.nodes.index(node) + 1), etc.API_SERVER[0], etc.REGISTRY[0])
        run_ip(self.host(node).layout.netns, [f"address add {address}/32 dev lo" for address in own])

    def _api_port(self) -> int:
        server = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        return int(str(server).rpartition(":")[2])

    def _start_control_plane(self) -> None:
        certificates = certificate.make(self.root / "pki")
        inside = ("--listen-netns", *(str(self.host(node).layout.netns) for node in self.nodes))
        tls = ("--tls-cert", str(certificates[0]), "--tls-key", str(certificates[1]))
        service = ("--service", ":".join(map(str, etc.API_SERVER)))
        access = ("--kubeconfig", str(self.kubeconfig))
        self._start("apiserver", "devcluster.apiserver", *access, *tls, "--rbac", "--admission", *service, *inside)
        self.processes.await_ready("apiserver", self.kubeconfig.exists)
        self._start("controllers", "devcluster.controllers", *access, "--root-ca", str(certificates[0]))
        place = ("--folder", str(self.registry), "--listen", ":".join(map(str, etc.REGISTRY)))
        self._start("registry", "devcluster.images.registry", *place, *inside)

    def _furnish(self, node: str, number: int, snapshotter: str) -> None:
        host = self.host(node)
        host.make()
        texts = etc.files(node, number, snapshotter, self._programs(node))
        texts = {**texts, "/etc/kubernetes/kubelet.conf": etc.kubeconfig(self.kubeconfig.read_text())}
        for path, text in texts.items():
            file = _made(host.layout.root, path)
            file.write_text(text)
        for path, target in etc.links().items():
            _made(host.layout.root, path).symlink_to(target)
        shutil.copyfile(self.root / "pki/ca.crt", _made(host.layout.root, "/etc/kubernetes/pki/ca.crt"))

    def _programs(self, node: str) -> str:
        """Return the folders of programs of a host's runtime."""
        own = self.runtimes.get(node)
        return ":".join([*([str(own)] if own else []), self.host(node).environment()["PATH"]])

    def _write_state(self) -> None:
        keepers = {node: self.processes.pid(node) for node in self.nodes}
        (self.root / STATE).write_text(json.dumps(keepers))

    def _write_commands(self) -> None:
        cluster = f"MOORING_DEVCLUSTER={self.root}"
        path = _made(self.commands, "on")
        path.write_text(f'#!/bin/sh\nexec env {cluster} {sys.executable} -m devcluster.without_mooring on "$@"\n')
        path.chmod(0o755)

    def _images(self) -> Path:
        tarball = self.root / "images.tar"
        return tarball if tarball.exists() else write_images(tarball)

    def _start(self, name: str, module: str, *arguments: str) -> None:
        self.processes.start(name, [*_PYTHON, module, *arguments], {"PYTHONUNBUFFERED": "1"})


def kept(root: Path, node: str, *command: str) -> Sequence[str]:
    """Return the command that runs another on a host of the running cluster below ``root``."""
    keepers = json.loads((root / STATE).read_text())
    if node not in keepers:
        raise SystemExit(f"devcluster: host {node!r} is none of {', '.join(keepers)}")
    return HostRoot(node, Layout.at(root, node)).enter(keepers[node], *command)


def _made(root: Path, path: str) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    return file
