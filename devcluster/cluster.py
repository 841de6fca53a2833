"""A whole cluster on this machine: the API server, simulated hosts, and Mooring's programs as processes.

Takes a folder and the number of hosts; returns, once started, a cluster in which every node is Ready and has published
its inventory. The API server has RBAC and the admission policies of the manifests; scheduler and advertisers have their
accounts' rights. Every program runs as its own process with the flags that an operator would use; the simulation
replaces only the PFs' VF table (`devcluster.hosts.cni`).
"""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.accounts import MANIFESTS, NAMESPACE, Accounts
from devcluster.hosts.layout import Layout
from devcluster.processes import Processes, free_ports
from devcluster.runtime.containerd import Containerd, Place, fetched, takes_cdi
from devcluster.runtime.images import write_images
from devcluster.without_mooring import certificate

_PYTHON = (sys.executable, "-m")
_KEEP_ENV = {"PYTHONUNBUFFERED": "1"}


@dataclass(slots=True)
class Cluster:
    """A cluster below ``root``; ``runtime`` is what runs behind each shim, ``gpus_on`` are the hosts with GPUs.

    Those need a containerd that does CDI: the installed one, else one of ``fetched_runtimes``, else the small runtime.
    On the hosts in ``rates_on`` rates of running pods may change. ``is_whole``: with leader election, and with the
    controllers that give each namespace its account; tests of single programs need neither. ``environments`` add
    variables to those of a program, by its name (``scheduler``, ``n1-cni``): it may be another release's, and so may
    ``manifests``.
    """

    root: Path
    nodes: Sequence[str]
    runtime: str = "containerd"
    vfs: int = 8
    gpus_on: Sequence[str] = ()
    rates_on: Sequence[str] = ()
    is_whole: bool = False
    fetched_runtimes: Path | None = None
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    manifests: Path = MANIFESTS
    processes: Processes = field(init=False)
    port: int = field(init=False)
    _containerds: list[Containerd] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.processes = Processes(self.root / "logs")
        (self.port,) = free_ports(1)

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def _accounts(self) -> Accounts:
        return Accounts(self.kubeconfig, self.manifests)

    def layout(self, node: str) -> Layout:
        return Layout.at(self.root, node)

    def start(self, tell: Callable[[str], None] = lambda _text: None) -> None:
        """Start everything; raise StartError with the end of its log for a program that does not start."""
        tell("simulated hosts: network namespaces, PFs, VFs, sysfs")
        self._start_hosts()
        tell("API server with RBAC, Mooring's accounts and admission policies")
        self._start_api()
        runtime = "the small runtime" if self.runtime == "small" else self.runtime
        tell(f"on each host: {runtime}, CRI shim, CNI server, kubelet stand-in, advertiser")
        with_cdi = self._with_cdi()
        if self.gpus_on and self.runtime == "containerd" and with_cdi != (self.runtime, None):
            told = "the small runtime" if with_cdi[1] is None else f"containerd {with_cdi[1].parents[1].name}"
            tell(f"on {', '.join(self.gpus_on)}: {told}, since the installed containerd has no CDI")
        for node in self.nodes:
            self._start_runtime(node, *(with_cdi if node in self.gpus_on else (self.runtime, None)))
            self._start_cni(node)
        for node in self.nodes:
            self._start_shim(node)
            self._start_bypass(node)
            self._start_kubelet(node)
        for node in self.nodes:
            self._start_advertiser(node)
        tell("scheduler")
        self._start_scheduler()

    def stop(self) -> None:
        """Stop everything that `start` started, pods first: their interfaces are restored while Mooring still runs."""
        for daemon in self._containerds:
            daemon.stop()
        self.processes.stop()

    def runtime_socket(self, node: str) -> Path:
        return self.layout(node).containerd / "containerd.sock"

    def _start_hosts(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        named = [word for node in self.nodes for word in ("--node", node)]
        named += [word for node in self.gpus_on for word in ("--gpus-on", node)]
        self._start("hosts", "devcluster.hosts", "up", "--root", str(self.root), "--vfs", str(self.vfs), *named)
        ready = [self.layout(node).description for node in self.nodes]
        self.processes.await_ready("hosts", lambda: all(path.exists() for path in ready))

    def _start_api(self) -> None:
        namespaces = [str(self.layout(node).netns) for node in self.nodes]
        own, key = certificate.make(self.root / "pki")
        access = ("--port", str(self.port), "--kubeconfig", str(self.kubeconfig))
        tls = ("--tls-cert", str(own), "--tls-key", str(key))
        options = ("--rbac", "--admission", "--listen-netns", *namespaces)
        self._start("apiserver", "devcluster.apiserver", *access, *tls, *options)
        self.processes.await_ready("apiserver", self.kubeconfig.exists)
        self._accounts.install(("rates",) if self.rates_on else ())
        if self.is_whole:
            self._start(
                "controllers", "devcluster.controllers", "--kubeconfig", str(self.kubeconfig), "--root-ca", str(own)
            )

    def _with_cdi(self) -> tuple[str, Path | None]:
        """Return the runtime of hosts with GPUs, and the folder of its programs where it is not the installed one."""
        others = fetched(self.fetched_runtimes) if self.fetched_runtimes is not None else []
        if self.runtime != "containerd":
            return self.runtime, None
        found = [programs for programs in (None, *others) if takes_cdi(programs)]
        return ("containerd", found[0]) if found else ("small", None)

    def _start_runtime(self, node: str, runtime: str, programs: Path | None) -> None:
        host = self.layout(node)
        host.containerd.mkdir(parents=True, exist_ok=True)
        if runtime == "containerd":
            place = Place(host.containerd, host.cni_bin, host.cni_conf, netns=host.netns, programs=programs)
            daemon = Containerd(place, self._images())
            self._containerds.append(daemon)
            daemon.start()
            return
        folders = ("--folder", str(host.containerd), "--cni-bin", str(host.cni_bin), "--cni-conf", str(host.cni_conf))
        self._start_on(
            node, "runtime", "devcluster.runtime", "--listen", f"unix://{self.runtime_socket(node)}", *folders
        )
        self.processes.await_ready(f"{node}-runtime", self.runtime_socket(node).exists)

    def _images(self) -> Path:
        tarball = self.root / "images.tar"
        return tarball if tarball.exists() else write_images(tarball)

    def _start_cni(self, node: str) -> None:
        host = self.layout(node)
        flags = ("--socket", str(host.run / "cni.sock"), *self._folders(node), "--node-name", node)
        self._start_on(node, "cni", "devcluster.hosts.cni", "--vf-table", str(host.vftable), "serve", *flags)

    def _start_advertiser(self, node: str) -> None:
        # Its token is bound to the node, as a DaemonSet's pod has one: the policy lets it write no other.
        self.processes.await_ready(f"{node}-kubelet", lambda: self._accounts.has_node(node))
        access, host = self._accounts.kubeconfig("advertiser", node), self.layout(node)
        flags = ("--kubeconfig", str(access), "--node-name", node, *self._folders(node))
        gpus = self._gpu_flags(node)
        if gpus:
            # Of this host, and not those of the machine.
            config = str(host.containerd / "config.toml")
            gpus = ("--gpus", *gpus, "--runtime-config", config, "--nvidia-runtime-config", str(host.home / "toolkit"))
        more = (*gpus, *(("--rates",) if node in self.rates_on else ()))
        self._start_on(node, "advertiser", "advertiser", "serve", *flags, *more, "--getpfs-addr", "127.0.0.1:54005")

    def _start_shim(self, node: str) -> None:
        host = self.layout(node)
        sockets = ("--listen", f"unix://{host.run}/cri.sock", "--runtime", f"unix://{self.runtime_socket(node)}")
        own = ("--node-name", node, "--dev", str(host.dev), *self._folders(node), *self._gpu_flags(node))
        self._start_on(node, "shim", "cri_shim", *sockets, *own)
        self.processes.await_ready(f"{node}-shim", (host.run / "cri.sock").exists)

    def _start_bypass(self, node: str) -> None:
        host = self.layout(node)
        sockets = ("--listen", f"unix://{host.run}/cri.sock", "--runtime", f"unix://{self.runtime_socket(node)}")
        run, check = self._folders(node)[-2:], (*self._folders(node)[:-2], "--dev", str(host.dev))
        self._start_on(node, "bypass", "cri_shim.bypass", *sockets, *run, "--", *check, *self._gpu_flags(node))

    def _start_kubelet(self, node: str) -> None:
        endpoint = f"unix://{self.layout(node).run}/cri.sock"
        flags = ("--kubeconfig", str(self.kubeconfig), "--node-name", node, "--container-runtime-endpoint", endpoint)
        self._start_on(node, "kubelet", "devcluster.kubelet", *flags)

    def _start_scheduler(self) -> None:
        access = str(self._accounts.kubeconfig("scheduler"))
        (port,) = free_ports(1)
        flags = ("--kubeconfig", access, "--metrics-addr", f"127.0.0.1:{port}")
        elects = ("--lease-namespace", NAMESPACE) if self.is_whole else ("--leader-elect", "false")
        self._start("scheduler", "scheduler", *flags, *elects)

    def _gpu_flags(self, node: str) -> tuple[str, ...]:
        host = self.layout(node)
        return ("--proc", str(host.proc), "--cdi", str(host.cdi)) if node in self.gpus_on else ()

    def _folders(self, node: str) -> tuple[str, ...]:
        host = self.layout(node)
        return ("--sysfs", str(host.sys), "--state", str(host.state), "--run", str(host.run))

    def _start(self, name: str, module: str, *arguments: str) -> None:
        self.processes.start(name, [*_PYTHON, module, *arguments], self._environment(name))

    def _start_on(self, node: str, name: str, module: str, *arguments: str) -> None:
        """Start a node's program inside that host's network namespace."""
        enter = ("nsenter", f"--net={self.layout(node).netns}")
        command = [*enter, *_PYTHON, module, *arguments]
        self.processes.start(f"{node}-{name}", command, self._environment(f"{node}-{name}"))

    def _environment(self, name: str) -> Mapping[str, str]:
        return {**_KEEP_ENV, **self.environments.get(name, {})}


def has_containerd() -> bool:
    """Return whether this machine can run the real runtime."""
    return all(shutil.which(command) for command in ("containerd", "runc", "ctr"))
