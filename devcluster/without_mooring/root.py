"""A host's root folder, and the namespaces in which it is the root: what a login on the host sees.

Its own are /etc, /opt, /root, /run, /srv, /tmp and /var, which lie below the root folder, and /sys and /dev, which are
the simulated NIC's. /usr, the interpreter and this repository are the machine's, read-only. Process 1 is the stand-in
for systemd; with its end every process of the host ends.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.hosts.layout import Layout

REPOSITORY = Path(__file__).parents[2]
COMMANDS = "/devcluster/bin"
NIC = "/devcluster/nic"
# Where every Python on the host looks first. It imports `sitecustomize` at its start, which needs `devcluster`: what is
# installed on the host has neither.
_SITE = "/devcluster/site"
_OWN = (
    "etc/modprobe.d",
    "opt",
    "root",
    "run",
    "srv",
    "tmp",
    "var/lib",
    "var/log",
    "devcluster/bin",
    "devcluster/nic",
    "devcluster/site",
)
_MOUNT_POINTS = ("dev", "proc", "sys", "usr", ".machine")
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What the machine's programs read of its /etc.
_COPIED = ("passwd", "group", "nsswitch.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")
# The first kubectl 1.N whose kustomize reads the manifests' overlays.
_KUBECTL_MINOR = 31
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")

_SCRIPT = """\
mount --bind {root} {root}
cd {root}
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs dev
{devices}
cp -a {dev}/infiniband dev/
mkdir -p dev/shm dev/pts
ln -s /proc/self/fd dev/fd
mkdir -p {sys}/fs/cgroup
mount --bind {sys} sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --bind {nic} devcluster/nic
{read_only}
pivot_root . .machine
umount --lazy /.machine
hostname {node}
exec {process_1}
"""


@dataclass(frozen=True, slots=True)
class HostRoot:
    """One host's root: make its folder, boot it, run commands in it.

    ``shared`` is a further folder of the machine that the host shares.
    """

    node: str
    layout: Layout
    shared: Path | None = None

    def make(self) -> None:
        """Make the root folder with what a fresh host has: accounts, libraries' paths, empty folders."""
        root = self.layout.root
        for name in (*_OWN, *_MOUNT_POINTS):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "var/run").symlink_to("/run")
        for path in (Path(__file__).parent / "site/sitecustomize.py", REPOSITORY / "devcluster"):
            (root / _SITE.lstrip("/") / path.name).symlink_to(path)
        for name in _MERGED:
            if Path("/", name).is_symlink():
                (root / name).symlink_to(Path("/", name).readlink())
        for name in _COPIED:
            _copy(Path("/etc", name), root / "etc" / name)
        for folder in self._machines():
            (root / str(folder).lstrip("/")).mkdir(parents=True, exist_ok=True)
        self._write_command("systemctl", 'exec {python} -m devcluster.systemd.systemctl "$@"')
        self._write_command("journalctl", '[ "$1" = -u ] && exec cat /var/log/journal/"${{2%.service}}".service.log')

    def boot_command(self) -> Sequence[str]:
        """Return the command whose process keeps the host running; its only child is the host's process 1."""
        spaces = ("--mount", "--pid", "--uts", "--fork", "--kill-child", "--propagation", "private")
        return ("nsenter", f"--net={self.layout.netns}", "unshare", *spaces, "sh", "-eu", "-c", self._script())

    def enter(self, keeper: int, *command: str) -> Sequence[str]:
        """Return the command that runs another on the host; ``keeper`` is the process of `boot_command`."""
        spaces = ("--mount", "--net", "--pid", "--uts", "--wdns=/root")
        variables = [f"{name}={value}" for name, value in self.environment().items()]
        return ("nsenter", f"--target={self.process_1(keeper)}", *spaces, "env", "-i", *variables, *command)

    def process_1(self, keeper: int) -> int:
        """Return the pid that the host's process 1 has outside; raise OSError or IndexError if it is down."""
        return int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text(encoding="ascii").split()[0])

    def environment(self) -> dict[str, str]:
        """Return the environment of a login."""
        own = f"{COMMANDS}:{Path(sys.base_prefix) / 'bin'}"
        return {
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PATH": f"{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": _SITE,
            "TERM": "xterm",
        }

    def _script(self) -> str:
        where = self.layout
        devices = [f"touch dev/{name}; mount --bind /dev/{name} dev/{name}" for name in _DEVICES]
        shown = [f"mount --bind {_quoted(path)} .{_quoted(path)}; {_protect(path)}" for path in self._machines()]
        variables = [f"{name}={value}" for name, value in self.environment().items()]
        python = (sys.executable, "-m", "devcluster.systemd")
        return _SCRIPT.format(
            root=_quoted(where.root),
            dev=_quoted(where.dev),
            sys=_quoted(where.sys),
            nic=_quoted(where.vftable.parent),
            devices="\n".join(devices),
            read_only="\n".join(shown),
            node=self.node,
            process_1=shlex.join(["env", "-i", *variables, *python]),
        )

    def _machines(self) -> Iterator[Path]:
        """Yield the machine's folders that the host shares, none of them inside another."""
        folders = [Path("/usr"), Path(sys.base_prefix), Path(sys.prefix), REPOSITORY, *filter(None, [self.shared])]
        for folder in dict.fromkeys(folders):
            if not any(folder != other and folder.is_relative_to(other) for other in folders):
                yield folder

    def _write_command(self, name: str, text: str) -> None:
        path = self.layout.root / COMMANDS.lstrip("/") / name
        path.write_text(f"#!/bin/sh\nexport PYTHONPATH={_SITE}\n{text.format(python=sys.executable)}\n")
        path.chmod(0o755)


def _protect(path: Path) -> str:
    return f"mount -o remount,bind,ro .{_quoted(path)}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.exists():
        shutil.copyfile(source, target)


def is_possible() -> str | None:
    """Return why this machine cannot have such hosts, None if it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [
        name
        for name in ("unshare", "nsenter", "pivot_root", "ip", "containerd", "runc", "openssl")
        if not shutil.which(name)
    ]
    return f"needs {', '.join(missing)}" if missing else None


def kubectl_is_too_old() -> str | None:
    """Return why this machine's kubectl cannot apply Mooring's manifests, None if it can: they need its kustomize."""
    if shutil.which("kubectl") is None:
        return "there is no kubectl"
    told = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=False)
    try:
        version = json.loads(told.stdout)["clientVersion"]
        minor = int(version["minor"].rstrip("+"))
    except (ValueError, KeyError):
        return f"kubectl does not say its version: {told.stderr.strip()[:200]}"
    return None if minor >= _KUBECTL_MINOR else f"kubectl {version['gitVersion']} is older than 1.{_KUBECTL_MINOR}"
