"""A real systemd of one's own, the first process of a PID namespace: it runs units, and nothing on the host changes.

`isolate` comes first: the root folder read-only, and fresh folders where programs write. The working folder, where this
repository and its interpreter are, stays in place also below one of these. Units need
``DefaultDependencies=no`` (`LEAVE_THE_HOST`): what sysinit.target starts is for a machine of one's own, for instance
systemd-tmpfiles, which empties /tmp.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

LEAVE_THE_HOST = "[Unit]\nDefaultDependencies=no\n"
_LIMIT_S = 90.0
# "container" informs systemd that the machine is not its own; no environment from here.
_FIRST = (
    "mount -t proc proc /proc; exec env -i container=lab PATH=$PATH /lib/systemd/systemd --system --unit=lab.target"
)
_ISOLATE = """\
mount --make-rprivate / && exec 9<. &&
for folder in /run /tmp /opt /var /mnt; do mount -t tmpfs tmpfs $folder || exit 1; done &&
case $PWD in /run/* | /tmp/* | /opt/* | /var/* | /mnt/*)
  mkdir -p "$PWD" && mount --no-canonicalize --bind /proc/self/fd/9 "$PWD" && mount -o remount,bind,ro "$PWD" &&
  cd "$PWD" || exit 1 ;;
esac && exec 9<&- &&
mkdir -p /run/systemd/system /run/lock /var/lib /var/log /mnt/etc &&
cp -a /etc/. /mnt/etc && mount --bind /mnt/etc /etc && mount -t tmpfs tmpfs /etc/systemd/system &&
mount -o remount,bind,ro / && (umount -R /sys/fs/cgroup || true) && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
ip link set lo up && exec "$@"
"""


def isolate(arguments: Sequence[str]) -> int:
    """Run this program again with ``arguments``, where nothing that it does reaches the host; return its status."""
    unshare = ("unshare", "--mount", "--cgroup", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    return subprocess.run([*unshare, "sh", "-c", _ISOLATE, "sh", sys.executable, *arguments], check=False).returncode


class Systemd:
    """The systemd that this process starts, queried by its own systemctl."""

    def __init__(self) -> None:
        command = ["unshare", "--pid", "--mount", "--fork", "sh", "-c", _FIRST]
        self._outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._await(lambda: self._children() != "")
        self._pid = self._children()
        self._await(lambda: self.ask("systemctl", "is-active", "lab.target") == "active")

    def _await(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + _LIMIT_S
        while not reached():
            if time.monotonic() > until:
                raise TimeoutError("systemd does not start")
            time.sleep(0.1)

    def _children(self) -> str:
        found = subprocess.run(["pgrep", "-P", str(self._outer.pid)], capture_output=True, text=True, check=False)
        return found.stdout.strip()

    def inside(self, *words: str) -> list[str]:
        """Return the command that runs one where this systemd is the first process."""
        return ["nsenter", "-t", self._pid, "--pid", "--mount", *words]

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.inside(*words), capture_output=True, text=True, check=False)

    def ask(self, *words: str) -> str:
        return self.run(*words).stdout.strip()

    def shown(self, unit: str, name: str) -> str:
        return self.ask("systemctl", "show", "--value", "-p", name, unit)

    def processes(self, unit: str) -> list[int]:
        """Return the pids of a unit's processes, as numbered there."""
        group = self.shown(unit, "ControlGroup")
        return [int(pid) for pid in self.ask("cat", f"/sys/fs/cgroup{group}/cgroup.procs").split()]

    def end(self) -> None:
        os.kill(int(self._pid), signal.SIGKILL)
        self._outer.wait()
