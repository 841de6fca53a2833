"""Run one private containerd for one host: its own root, state, socket and CNI folders, and nothing of it left after.

`Containerd.stop` tears the pods down over CRI before it ends the daemon: killed first, containerd would leave shm
mounts, network namespaces and cgroups behind. What a crash left below the folder is cleaned up afterwards all the same.
"""

import contextlib
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import grpc
import structlog
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.runtime import images, mounts, processes

_log = structlog.get_logger()
_ANSWER_S = 90.0  # A busy machine starts ten of them at once; alone it takes 0.07 s.
_TEARDOWN_S = 30.0  # A pod's DEL chain takes well under a second.
_END_S = 10.0
_POLL_S = 0.02
# containerd pull request 6654.
_FIRST_WITH_CDI = (1, 7)
_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.\d")
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

_CONFIG = """\
version = 2
root = {root}
state = {state}
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = {socket}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {pause}
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  enable_cdi = true
  cdi_spec_dirs = {cdi}
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni_bin}
    conf_dir = {cni_conf}
    max_conf_num = 1
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {registries}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = {snapshotter}
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


class RuntimeStartError(RuntimeError):
    """A runtime that did not start: which, and the end of its log."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one containerd runs: its own folder (root, state, socket, log) and the CNI folders that it uses.

    ``netns`` is the network namespace (a path) of it and its CNI plugins; None is this process's. ``snapshotter`` None
    takes overlayfs, and native if the kernel refuses that. ``programs`` has containerd, runc, its shim and ctr,
    where they are not the installed ones: see `devcluster/runtime/fetch`.
    """

    folder: Path
    cni_bin: Path
    cni_conf: Path
    netns: Path | None = None
    snapshotter: str | None = None
    programs: Path | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    @property
    def cdi(self) -> Path:
        """The folder of CDI specifications."""
        return self.folder / "cdi"

    @property
    def environment(self) -> dict[str, str]:
        path = _ENVIRONMENT["PATH"]
        return {"PATH": path if self.programs is None else f"{self.programs}:{path}"}

    @property
    def log(self) -> Path:
        return self.folder / "containerd.log"


def takes_cdi(programs: Path | None) -> bool:
    """Return whether the containerd of a folder, or the installed one, gives CDI devices: 1.7 and later."""
    name = "containerd" if programs is None else str(programs / "containerd")
    said = subprocess.run([name, "--version"], capture_output=True, text=True, check=False, env=_ENVIRONMENT).stdout
    found = _VERSION.search(said)
    return found is not None and (int(found[1]), int(found[2])) >= _FIRST_WITH_CDI


def fetched(cache: Path) -> list[Path]:
    """Return the folders of programs that devcluster/runtime/fetch has left in its cache."""
    return [path.parent / "usr" / "bin" for path in sorted(cache.glob("*/complete"))]


def configuration(place: Place, snapshotter: str) -> str:
    """Return the text of config.toml."""
    places = {"root": place.folder / "root", "state": place.folder / "state", "socket": place.socket}
    cni = {"cni_bin": place.cni_bin, "cni_conf": place.cni_conf}
    return write_configuration(snapshotter, cdi=(place.cdi,), registries="", **cni, **places)


def write_configuration(snapshotter: str, *, cdi: Sequence[Path | str], **places: Path | str) -> str:
    """Return the text of config.toml; a JSON string is a TOML string.

    ``places`` are root, state, socket, cni_bin, cni_conf and registries (the folder that configures where images come
    from), ``cdi`` the folders of CDI specifications; 1.6 knows none.
    """
    values = {**places, "snapshotter": snapshotter, "pause": images.PAUSE}
    folders = json.dumps([str(folder) for folder in cdi])
    return _CONFIG.format(cdi=folders, **{name: json.dumps(str(value)) for name, value in values.items()})


class Containerd:
    """One containerd; `start` and `stop` may be called in turns, without records of earlier pods."""

    def __init__(self, place: Place, image_tarball: Path) -> None:
        self.place = place
        self._image_tarball = image_tarball
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._daemon is None else self._daemon.pid

    def start(self) -> None:
        """Start the daemon, wait until CRI answers and import the images; raise RuntimeStartError with its log."""
        wanted = (self.place.snapshotter,) if self.place.snapshotter else ("overlayfs", "native")
        for snapshotter in wanted:
            self._launch(snapshotter)
            if import_images(self.place.socket, snapshotter, self._image_tarball, self.place.environment):
                return
            self.stop()
        raise RuntimeStartError(f"containerd in {str(self.place.folder)!r} cannot unpack images by {wanted!r}")

    def stop(self) -> None:
        """Remove all pods over CRI, end the daemon and its shims, and detach what is left below the folder."""
        if self._daemon is None:
            return
        if self._daemon.poll() is None:
            try:
                remove_pods(self.place.endpoint)
            except grpc.RpcError as refused:
                _log.warning("a pod resists its removal", runtime=self.place.endpoint, reason=str(refused))
        _end(self._daemon)
        self._daemon = None
        sweep(self.place)

    def kill(self) -> None:
        """End the daemon alone, as a crash would; its pods live on until `start` or `stop`."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()

    def _launch(self, snapshotter: str) -> None:
        self.place.folder.mkdir(parents=True, exist_ok=True)
        config = self.place.folder / "config.toml"
        config.write_text(configuration(self.place, snapshotter), encoding="utf-8")
        command = [*_inside(self.place.netns), "containerd", "--config", str(config)]
        with self.place.log.open("ab") as log:
            self._daemon = subprocess.Popen(
                command,
                env=self.place.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_for_answer(self._daemon)

    def _wait_for_answer(self, daemon: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + _ANSWER_S
        while not answers(self.place.endpoint):
            if daemon.poll() is not None or time.monotonic() > deadline:
                _end(daemon)
                tail = self.place.log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeStartError(f"containerd in {str(self.place.folder)!r} does not answer: {tail}")
            time.sleep(_POLL_S)


@contextlib.contextmanager
def running(place: Place, image_tarball: Path) -> Iterator[Containerd]:
    """Run a containerd for the length of a block."""
    containerd = Containerd(place, image_tarball)
    try:
        containerd.start()
        yield containerd
    finally:
        containerd.stop()


def import_images(
    socket: Path, snapshotter: str, tarball: Path, environment: Mapping[str, str] = MappingProxyType(_ENVIRONMENT)
) -> bool:
    """Import the images of a tarball into a runtime; return whether its snapshotter could unpack them."""
    command = ["ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import"]
    options = ["--snapshotter", snapshotter, str(tarball)]
    done = subprocess.run([*command, *options], env=environment, capture_output=True, check=False)
    return done.returncode == 0


def snapshotter_of(folder: Path) -> str:
    """Return the snapshotter that a runtime with its root below ``folder`` can use: overlayfs, or native."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        parts = [Path(scratch, name) for name in ("lower", "upper", "work", "merged")]
        for part in parts:
            part.mkdir()
        options = "lowerdir={},upperdir={},workdir={}".format(*parts)
        mount = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(parts[3])]
        done = subprocess.run(mount, capture_output=True, check=False)
    return "overlayfs" if done.returncode == 0 else "native"


def answers(endpoint: str) -> bool:
    """Return whether a runtime answers Version and reports itself ready at ``endpoint``."""
    try:
        with grpc.insecure_channel(endpoint) as channel:
            stub = cri_grpc.RuntimeServiceStub(channel)
            stub.Version(cri.VersionRequest(), timeout=1)
            conditions = stub.Status(cri.StatusRequest(), timeout=1).status.conditions
            return any(condition.type == "RuntimeReady" and condition.status for condition in conditions)
    except grpc.RpcError:
        return False


def remove_pods(endpoint: str) -> None:
    """Stop and remove every sandbox over CRI, going on after each failure; raise the last RpcError."""
    failure: grpc.RpcError | None = None
    with grpc.insecure_channel(endpoint) as channel:
        stub = cri_grpc.RuntimeServiceStub(channel)
        for sandbox in stub.ListPodSandbox(cri.ListPodSandboxRequest(), timeout=_TEARDOWN_S).items:
            try:
                stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id), timeout=_TEARDOWN_S)
                stub.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id), timeout=_TEARDOWN_S)
            except grpc.RpcError as refused:
                failure = refused
    if failure is not None:
        raise failure


def sweep(place: Place) -> None:
    """End the shims and containers that still belong to this containerd and detach its mounts.

    A shim names its daemon's socket among its arguments; containers are its children. The pods' network namespaces are
    mounts below the state folder, and so go with the others.
    """
    shims = processes.started_with("-address", str(place.socket))
    processes.kill(processes.with_children(shims))
    mounts.unmount_below(place.folder)


def _inside(netns: Path | None) -> Sequence[str]:
    return () if netns is None else ("nsenter", f"--net={netns}")


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(_END_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
