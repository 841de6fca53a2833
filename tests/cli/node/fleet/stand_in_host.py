"""A host for an installer's pod: a root folder with busybox, a stand-in for process 1, and one for a runtime.

The stand-in's `mooring-node` is a script that does to the host what tests look at, and records its calls.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.node.fleet.runtime import Runtime
from cli.node.runtime import interpreter
from tests.support.polling import wait_until

# What stands for the runtime's loader. The host runs it from the image; its root folder is the host's.
_LOADER = """\
#!/bin/busybox sh
export PATH=/bin
while [ "$1" != -m ]; do shift; done
shift 2
echo "$*" >> /calls
case $1 in
  install | upgrade)
    echo "environment  installing"
    if [ -e /broken ]; then echo "mooring-node: No space left on device" >&2; exit 1; fi
    mkdir -p /var/lib/mooring/install
    echo "{}" > /var/lib/mooring/install/journal.json
    mkdir -p /opt/mooring/versions/@release@
    ln -sfn versions/@release@ /opt/mooring/current ;;
  check) if [ -e /findings ]; then cat /findings; else echo '{"ok":true,"findings":[]}'; fi ;;
  remove) rm -r /var/lib/mooring/install /opt/mooring ;;
esac
"""


@dataclass(frozen=True, slots=True)
class StandInHost:
    """The host's root folder, and the id of its process 1 in this machine's processes."""

    root: Path
    process: int

    def calls(self) -> list[str]:
        """Return the first word of each call of `mooring-node`, without checks."""
        words = [line.split()[0] for line in self.lines()]
        return [word for word in words if word != "check"]

    def lines(self) -> list[str]:
        """Return the arguments of each call of `mooring-node`."""
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def find(self, step: str, subject: str, found: str) -> None:
        """Let `mooring-node check` find something."""
        finding = {"step": step, "subject": subject, "found": found}
        (self.root / "findings").write_text(json.dumps({"ok": False, "findings": [finding]}))


@contextmanager
def stand_in_host(root: Path) -> Iterator[StandInHost]:
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in ("sh", "sleep", "mkdir", "ln", "cat", "rm"):
        (root / "bin" / applet).symlink_to("busybox")
    (root / "proc").mkdir()
    script = 'mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sleep 600'
    with subprocess.Popen(["unshare", "--mount", "--uts", "sh", "-c", script, "-", str(root)]) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/root").resolve() == root, "the host's process 1 runs")
        try:
            yield StandInHost(root, process.pid)
        finally:
            process.kill()


def runtime(folder: Path, version: str) -> Runtime:
    """Make a stand-in for an unpacked runtime."""
    (loader := Path(interpreter(str(folder))[0])).parent.mkdir(parents=True)
    loader.touch(0o755)
    (folder / "RELEASE.json").write_text(json.dumps({"v": 1, "version": version}))
    found = Runtime.at(folder)
    loader.write_text(_LOADER.replace("@release@", found.release))
    return found
