"""A machine and its pods, and which of them an event requeues."""

from typing import Any

import msgspec

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.events import Changed, Identity, Removed
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json, MakeNode, MakePf, MakePod
from tests.scheduler.group_life import identity


class Scene:
    """A machine, and its events; ``tries`` counts its decisions."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine = machine
        self._make_node = make_node
        self._make_pf = make_pf
        self._make_pod = make_pod
        self.now = 0.0

    def node(self, name: str = "n1", vfs: int = 1, pf: Json | None = None, **fields: Any) -> None:
        node = self._make_node(name, (self._make_pf(vfs=vfs, **(pf or {})),), **fields)
        self.machine.nodes(Changed(Identity(name), node), self.now)

    def pod(self, **fields: Any) -> Pod:
        return self.show(self._make_pod(**fields))

    def holder(self, **fields: Any) -> Pod:
        """Show a bound pod that has VF 0 of n1."""
        pod = self._make_pod(node="n1", **fields)
        vfs = (AssignedVf("pf0", 0, "0000:04:00.2", "ethernet", "rail0"),)
        text = dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))
        return self.show(pod, annotations={names.ASSIGNMENT: text})

    def show(self, pod: Pod, **metadata: Any) -> Pod:
        document = msgspec.to_builtins(pod)
        document["metadata"] |= metadata
        seen = msgspec.convert(document, Pod)
        self.machine.pods(Changed(identity(pod), seen), self.now)
        return seen

    def remove(self, pod: Pod) -> None:
        self.machine.pods(Removed(identity(pod)), self.now)

    def tries(self) -> list[str]:
        """Let all backoffs end, and return the pods tried, in order, until none is ready."""
        self.now += 100.0
        tried: list[str] = []
        while True:
            uid = self._next()
            if uid is None:
                return tried
            tried.append(uid)

    def _next(self) -> str | None:
        before = {uid: one.attempts for uid, one in self.machine.pending_pods.pending.items()}
        if self.machine.step(self.now) is None:
            return None
        after = self.machine.pending_pods.pending.items()
        (uid,) = [uid for uid, one in after if one.attempts > before.get(uid, 0)]
        return uid


def requesting(cpu: str = "0", **amounts: str) -> Json:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu} | amounts}}]}
