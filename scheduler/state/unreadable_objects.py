"""Which objects are left out, and why: reported once, not at each of their heartbeats. Pure."""

from collections.abc import Iterable
from typing import Any

from mooring.kube.events import Identity
from scheduler.cycle.instructions import Instruction, Notice, Subject
from scheduler.kube.objects import Node, Pod


class UnreadableObjects:
    """Reasons by kind, namespace and name, for as long as the objects exist and are unreadable."""

    def __init__(self) -> None:
        self._why: dict[type[Any], dict[tuple[str, str], str]] = {}

    def __len__(self) -> int:
        return sum(len(reasons) for reasons in self._why.values())

    def node(self, identity: Identity, why: str) -> list[Instruction]:
        return self._note(Node, identity, Notice("node", "node left out", {"node": identity.name, "reason": why}))

    def pod(self, identity: Identity, why: str) -> list[Instruction]:
        about = {"pod": f"{identity.namespace}/{identity.name}", "uid": identity.uid, "reason": why}
        return self._note(Pod, identity, Notice("pod", "pod left out", about))

    def other(self, kind: type[Any], identity: Identity, subject: Subject, why: str) -> list[Instruction]:
        about = {"object": f"{identity.namespace}/{identity.name}", "kind": kind.__name__, "reason": why}
        return self._note(kind, identity, Notice(subject, "left out", about))

    def _note(self, kind: type[Any], identity: Identity, notice: Notice) -> list[Instruction]:
        reasons, key = self._why.setdefault(kind, {}), (identity.namespace, identity.name)
        known, reasons[key] = reasons.get(key), notice.fields["reason"]
        return [] if known == notice.fields["reason"] else [notice]

    def drop(self, kind: type[Any], identity: Identity) -> None:
        """Record that the object is deleted, or was read."""
        if reasons := self._why.get(kind):
            reasons.pop((identity.namespace, identity.name), None)

    def keep(self, kind: type[Any], there: Iterable[Identity]) -> None:
        """Record that these are all objects of this kind."""
        if reasons := self._why.get(kind):
            present = {(identity.namespace, identity.name) for identity in there}
            self._why[kind] = {key: why for key, why in reasons.items() if key in present}
