"""A host for an installer's pod: a root folder with busybox, a stand-in for process 1, and one for a runtime.

The stand-in's `mooring-node` is a script that does to the host what the test looks at, and records its calls.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.polling import wait_until

_MOORING_NODE = """\
#!/bin/busybox sh
# Run on the host: its root folder is the host's, and the folder it lies in is the copy there.
export PATH=/bin:/applets
home=$(dirname $(dirname $(readlink -f $0)))
echo "$*" >> /calls
case $1 in
  install | upgrade)
    echo "environment  installing"
    if [ -e /broken ]; then echo "mooring-node: No space left on device" >&2; exit 1; fi
    mkdir -p /var/lib/mooring/install
    echo "{}" > /var/lib/mooring/install/journal.json
    ln -sfn $(basename $home) /opt/mooring/current
    ln -sfn current/bin /opt/mooring/bin ;;
  check) if [ -e /findings ]; then cat /findings; else echo '{"ok":true,"findings":[]}'; fi ;;
  remove) rm -r /var/lib/mooring/install /opt/mooring/current ;;
esac
"""


@dataclass(frozen=True, slots=True)
class StandInHost:
    """The host's root folder, and the id of its process 1 in this machine's processes."""

    root: Path
    process: int

    def calls(self) -> list[str]:
        """Return the first word of each call of `mooring-node`, without checks."""
        path = self.root / "calls"
        words = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
        return [word for word in words if word != "check"]

    def find(self, step: str, subject: str, found: str) -> None:
        """Let `mooring-node check` find something."""
        finding = {"step": step, "subject": subject, "found": found}
        (self.root / "findings").write_text(json.dumps({"ok": False, "findings": [finding]}))


@contextmanager
def stand_in_host(root: Path) -> Iterator[StandInHost]:
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in ("sh", "sleep", "dirname", "basename", "readlink", "mkdir", "ln", "cat", "rm"):
        (root / "bin" / applet).symlink_to("busybox")
    command = ["unshare", "--mount", "--uts", "chroot", str(root), "/bin/sleep", "600"]
    with subprocess.Popen(command) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/root").resolve() == root, "the host's process 1 runs")
        try:
            yield StandInHost(root, process.pid)
        finally:
            process.kill()


def runtime(folder: Path, name: str) -> Path:
    """Make a stand-in for an unpacked runtime."""
    (folder / "bin").mkdir(parents=True)
    (folder / "RELEASE.json").write_text(json.dumps({"v": 1, "name": name}))
    (folder / "bin/mooring-node").write_text(_MOORING_NODE)
    (folder / "bin/mooring-node").chmod(0o755)
    return folder
