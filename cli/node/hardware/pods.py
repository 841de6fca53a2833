"""Pods of the test: each a network namespace with one VF, which mooring-cni attaches and detaches as from a runtime.

The records are the node's own, so that its programs know what the VF is used for, and repair what a killed run leaves.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.node.hardware.commands import CommandError, attempt, run
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.files import remove_file, write_file
from mooring.parsing import decode
from mooring.records import sandbox_marks
from mooring.records.pod_record import PodRecord, dump_pod_record, pod_record_name

PREFIX = "mooring-hardware-test"
IFNAME = "net1"
_NAMESPACES = Path("/run/netns")
_MOST = 8


@dataclass(frozen=True, slots=True)
class Folders:
    """Mooring's folders on this host: what outlasts a boot, and what does not."""

    state: Path = Path("/var/lib/mooring")
    run: Path = Path("/run/mooring")


@dataclass(slots=True)
class Pod:
    """A pod with its VF: its network namespace, and how long ADD and DEL took in seconds, None before they ended."""

    name: str
    vf: AssignedVf
    folders: Folders
    add_s: float | None = None
    del_s: float | None = None

    @property
    def inside(self) -> tuple[str, ...]:
        """The beginning of a command that runs in the pod's namespace."""
        return ("ip", "netns", "exec", self.name)

    @property
    def netns(self) -> str:
        """The path of the pod's network namespace."""
        return str(_namespace(self.name))

    def attach(self) -> None:
        """Attach the VF; raise CommandError."""
        self.add_s = self._call("ADD")

    def detach(self) -> None:
        """Detach the VF unless that is done; raise CommandError."""
        if self.del_s is None:
            self.del_s = self._call("DEL")

    def _call(self, command: str) -> float:
        began = time.monotonic()
        call(command, self.name, self.folders)
        return time.monotonic() - began


@contextmanager
def pod(number: int, vf: AssignedVf, folders: Folders) -> Iterator[Pod]:
    """Make a pod with a VF; detach the VF and remove the pod at the end; raise CommandError if ADD or DEL fails."""
    pod = Pod(f"{PREFIX}-{number}", vf, folders)
    record = folders.state / pod_record_name(pod.name)
    with ExitStack() as undo:
        undo.callback(remove_file, record)
        write_file(record, _record(pod.name, vf))
        undo.callback(attempt, ("ip", "netns", "delete", pod.name))
        run(("ip", "netns", "add", pod.name))
        undo.callback(pod.detach)
        # A node whose shim runs attaches VFs to no sandbox but those under way through it.
        with sandbox_marks.mark_call(folders.run, pod.name):
            pod.attach()
        yield pod


def detach_leftovers(folders: Folders) -> list[str]:
    """Remove the pods of an earlier run that was killed; return their names; raise CommandError."""
    names = [f"{PREFIX}-{number}" for number in range(_MOST)]
    left = [name for name in names if (folders.state / pod_record_name(name)).exists() or _namespace(name).exists()]
    for name in left:
        call("DEL", name, folders)
        attempt(("ip", "netns", "delete", name))
        remove_file(folders.state / pod_record_name(name))
    return left


def call(command: str, name: str, folders: Folders) -> None:
    """Execute mooring-cni as a runtime does; raise CommandError with its error."""
    conf = {
        "cniVersion": "1.0.0",
        "name": PREFIX,
        "type": "mooring-cni",
        "node": PREFIX,
        "state": str(folders.state),
        "run": str(folders.run),
        "awaitInit": False,
    }
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": name,
        "CNI_NETNS": str(_namespace(name)),
        "CNI_IFNAME": IFNAME,
        "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE={PREFIX};K8S_POD_NAME={name};K8S_POD_UID={name}",
        "PATH": os.defpath,
        # What the NIC does is tested, not what this node's pods may have.
        "MOORING_ENFORCE_OFFER": "false",
    }
    run((sys.executable, "-m", "cni"), json.dumps(conf), environment)


def refusal(error: CommandError) -> str:
    """Return the message of mooring-cni's error answer, the command's failure if there is none."""
    try:
        document = decode(error.output)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return str(error)
    return ": ".join(str(document[key]) for key in ("msg", "details") if document.get(key)) or str(error)


def _namespace(name: str) -> Path:
    return _NAMESPACES / name


def _record(uid: str, vf: AssignedVf) -> str:
    return dump_pod_record(PodRecord(f"{PREFIX}/{uid}", Assignment(uid=uid, node=PREFIX, vfs=(vf,))))
