"""A simulated host: a root folder in which the real `mooring-node` runs, with a stand-in for systemd.

The folder is on a tmpfs and has a kubeadm node's files. The stand-in for `systemctl` starts nothing: it refuses a unit
without a file or program, keeps which units are active until the next boot, and logs each call. The kubelet is only
such calls. `mooring-node` and `mooring-advertiser init` are forks of this Python in the root folder, so that a run
costs no start of an interpreter.
"""

import asyncio
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from advertiser.__main__ import main as run_advertiser
from cli.node.__main__ import main as run_mooring_node
from cli.node.fleet.enter import HostProcess, Outcome
from cli.node.fleet.runtime import Runtime
from cli.node.runtime import RELEASE, interpreter, machine
from mooring.records import node_install
from mooring.records.handed_offer import NEXT
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name
from mooring.records.node_install import NodeInstall, read_node_install

_SYSTEMCTL = """\
#!/bin/busybox sh
echo "$*" >> /fleet/systemctl.log
active=/run/systemd-stand-in/active failed=/run/systemd-stand-in/failed
mkdir -p $active $failed
[ "$1" = --no-block ] && shift
verb=$1; shift
for unit in "$@"; do
  case $verb in
    is-active) if [ -e "$active/$unit" ]; then echo active; else echo inactive; exit 3; fi ;;
    is-failed) [ -e "$failed/$unit" ] || exit 1 ;;
    start | restart | reload-or-restart)
      file=/etc/systemd/system/$unit
      [ -f "$file" ] || { echo "Unit $unit not found." >&2; exit 5; }
      program=$(sed -n 's/^ExecStart=\\([^ ]*\\).*/\\1/p' "$file")
      [ -z "$program" ] || [ -x "$program" ] || { echo "$unit: $program is missing" >&2; exit 1; }
      : > "$active/$unit" ;;
    stop) rm -f "$active/$unit" ;;
  esac
done
"""
_KUBEADM: Mapping[str, str] = {
    "/etc/cni/net.d/10-flannel.conflist": '{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"}]}',
    "/var/lib/kubelet/kubeadm-flags.env": (
        'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --v=2"\n'
    ),
    "/opt/cni/bin/flannel": "",
}
_APPLETS = ("sh", "mkdir", "rm", "sed")
_OWN = ("etc", "opt", "var", "tmp", "srv")
_IMAGES = "/fleet/images"
_INIT = "mooring-init.service"
_LEDGER, _STAND_IN = "var/lib/mooring", "run/systemd-stand-in"
# Of the largest file of a release, so that it does not fit on a small disk.
_PAYLOAD_BYTES = 256 << 10
_FILES_AT_ONCE = 256


def make_image(folder: Path, commit: str) -> Runtime:
    """Write a release's runtime in small: programs that nothing starts, and RELEASE.json with every file's hash."""
    names = ("mooring-cni", "mooring-cri-shim", "mooring-shim-bypass", "mooring-node", "mooring-advertiser")
    contents = {f"bin/{name}": f"#!/bin/sh\n# {commit}\n".encode() for name in names}
    contents |= {"lib/payload": commit.encode() * (_PAYLOAD_BYTES // len(commit))}
    contents |= {interpreter("")[0][1:]: b"", "python/bin/python3": b""}
    for name, content in contents.items():
        (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if name.startswith("bin/") else 0o644)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    document = {"v": 1, "version": version("mooring"), "commit": commit, "arch": machine(), "files": digests}
    (folder / RELEASE).write_text(json.dumps(document))
    return Runtime.at(folder)


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """The host ``name``, whose root folder is ``root``; `make` it first, in a mount namespace of its own.

    ``images`` is the folder of the images of which one is the installer's.
    """

    # Of a disk on which a release does not fit, and of one on which several do.
    small_disk, large_disk = 128 << 10, 64 << 20
    offer = '{"v": 1, "pfs": []}\n'

    name: str
    root: Path
    images: Path

    def make(self, *, with_small_disk: bool = False) -> None:
        """Make the host's files; ``with_small_disk`` a release does not fit on /opt."""
        for name in (*_OWN, "bin", "fleet/bin", "proc/sys/kernel/random", "run", "sys/bus/pci/devices", "var/lib"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/busybox", self.root / "bin/busybox")
        for applet in _APPLETS:
            (self.root / "bin" / applet).symlink_to("busybox")
        (systemctl := self.root / "fleet/bin/systemctl").write_text(_SYSTEMCTL)
        systemctl.chmod(0o755)
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{uuid.uuid4()}\n")
        if with_small_disk:
            _mount("-t", "tmpfs", "-o", f"size={self.small_disk}", "tmpfs", self.root / "opt")
        for path, text in _KUBEADM.items():
            (there := self.root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            there.write_text(text)
        (self.root / _IMAGES[1:]).mkdir()
        _mount("--bind", self.images, self.root / _IMAGES[1:])
        for folder in _python_folders():
            (place := self.root / str(folder)[1:]).mkdir(parents=True, exist_ok=True)
            _mount("--bind", folder, place)

    def resize_disk(self, disk_bytes: int) -> None:
        _mount("-o", f"remount,size={disk_bytes}", self.root / "opt")

    def boot(self) -> None:
        """Clear what does not survive a boot, and start the units that are enabled, without the API server."""
        shutil.rmtree(self.root / "run")
        (active := self.root / _STAND_IN / "active").mkdir(parents=True)
        for link in (self.root / "etc/systemd/system").glob("*.wants/*"):
            (active / link.name).touch()

    def call(self, function: Callable[[], int]) -> Outcome:
        """Run a program's main function on the host; return its end."""
        with tempfile.TemporaryFile() as output:
            child = _fork(self.root, function, output.fileno())
            return _outcome(os.waitpid(child, 0)[1], output.fileno())

    def hand_over(self, offer: str) -> None:
        """Give the host an offer of the cluster, which init takes as its path unit would make it."""
        (there := self.root / _LEDGER / NEXT).parent.mkdir(parents=True, exist_ok=True)
        there.write_text(offer)
        ended = self.call(lambda: run_advertiser(["init", "--handed-over"]))
        note = self.root / _STAND_IN / "failed" / _INIT
        note.parent.mkdir(parents=True, exist_ok=True)
        if ended.status:
            note.touch()
        else:
            note.unlink(missing_ok=True)

    def hold_vfs(self, count: int) -> None:
        """Enter pods with VFs into the ledger, as ADD does."""
        for number in range(count):
            pci, netns = f"0000:3b:00.{number + 2}", Netns(f"/var/run/netns/{number}", number + 1)
            entry = LedgerEntry(
                *(pci, "ens1f0", number, "held", "boot", f"uid-{number}", f"default/p{number}", f"c{number}", "net1"),
                netns=netns,
                original=Original(name=f"ens1f0v{number}"),
            )
            (there := self.root / _LEDGER / ledger_name(pci)).parent.mkdir(parents=True, exist_ok=True)
            there.write_text(dump_ledger_entry(entry))

    def ledger(self) -> Mapping[str, tuple[str, int]]:
        """Return each entry's text and time of change."""
        entries = (self.root / _LEDGER / "vfs").glob("*.json")
        return {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in entries}

    def release_vfs(self) -> None:
        for path in (self.root / _LEDGER / "vfs").glob("*.json"):
            path.unlink()

    def installation(self) -> NodeInstall | None:
        """Return what the installer has reported for the advertiser."""
        path = self.root / "run/mooring" / node_install.NAME
        return read_node_install(path.read_text()) if path.exists() else None

    def has_begun(self) -> bool:
        """Return whether anything of an installation is there."""
        return (self.root / _LEDGER).exists()

    def kubelet_starts(self) -> int:
        """Return how often the kubelet was restarted."""
        path = self.root / "fleet/systemctl.log"
        calls = path.read_text().splitlines() if path.exists() else ()
        return sum(call.endswith("restart kubelet.service") for call in calls)

    def lost_pods(self) -> Sequence[str]:
        """Return the pods whose containers have ended: none, because they are only in the ledger."""
        return ()

    def active_units(self) -> set[str]:
        return {path.name for path in (self.root / _STAND_IN / "active").glob("mooring-*")}

    def tree(self) -> Mapping[str, str]:
        """Return mode and content of everything that lasts over a boot; units and their links are among it."""
        paths = (path for own in _OWN for path in (self.root / own).rglob("*"))
        return {str(path.relative_to(self.root)): _content(path) for path in paths}


@dataclass(frozen=True, slots=True)
class ForkedProcess(HostProcess):
    """Runs the installer's `mooring-node` on a host as a fork, whose end the installer awaits."""

    root: Path = Path("/")

    async def run(self, command: Sequence[str], say: Callable[[str], None] = lambda _line: None) -> Outcome:
        """Run `mooring-node` of a runtime."""
        words = command[command.index("cli.node") + 1 :]
        image = Path(command[command.index("cli.node") - 3]).parents[2].name
        with tempfile.TemporaryFile() as output:
            child = _fork(self.root, lambda: run_mooring_node(words), output.fileno(), f"{_IMAGES}/{image}/python")
            outcome = _outcome(await _ended(child), output.fileno())
        for line in outcome.output.splitlines():
            say(line)
        return outcome


async def _ended(child: int) -> int:
    """Wait for a child by its descriptor: a thread would be another one than the next child's."""
    descriptor, ended = os.pidfd_open(child), asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
    return os.waitpid(child, 0)[1]


def _fork(root: Path, function: Callable[[], int], output: int, prefix: str = sys.prefix) -> int:
    """Run a main function in a child whose root folder is the host's; ``prefix`` is that of its interpreter."""
    if (child := os.fork()) != 0:
        return child
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES_AT_ONCE, _FILES_AT_ONCE))
        os.chroot(root)
        os.chdir("/")
        os.environ.clear()
        os.environ["PATH"] = "/fleet/bin:/bin"
        sys.prefix = prefix
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        status = function()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException as failed:  # noqa: BLE001 - the child must not go on as its parent
        sys.stderr.write(f"{failed!r}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _outcome(status: int, output: int) -> Outcome:
    os.lseek(output, 0, os.SEEK_SET)
    with open(output, encoding="utf-8", errors="replace", closefd=False) as file:
        text = file.read()
    return Outcome(os.waitstatus_to_exitcode(status), text, text if status else "")


def _python_folders() -> Iterator[Path]:
    """Yield what this Python still reads after its start, none of them inside another."""
    folders = dict.fromkeys((Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[2]))
    return (
        folder for folder in folders if not any(folder != other and folder.is_relative_to(other) for other in folders)
    )


def _mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    mode = oct(path.stat().st_mode)
    return f"{mode} {hashlib.sha256(path.read_bytes()).hexdigest()}" if path.is_file() else mode
