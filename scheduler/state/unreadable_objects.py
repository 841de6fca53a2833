"""Which objects are ignored, and why: reported once, not at each of their heartbeats. Pure."""

from collections.abc import Iterable
from typing import Any

from mooring.kube.events import Identity
from scheduler.cycle.instructions import Instruction, Notice


class UnreadableObjects:
    """Reasons by kind, namespace and name, for as long as the objects exist and are unreadable."""

    def __init__(self) -> None:
        self._reasons: dict[type[Any], dict[tuple[str, str], str]] = {}

    def __len__(self) -> int:
        return sum(len(reasons) for reasons in self._reasons.values())

    def note(self, kind: type[Any], identity: Identity, notice: Notice) -> list[Instruction]:
        """Return the notice unless its reason is already reported."""
        reasons, key = self._reasons.setdefault(kind, {}), (identity.namespace, identity.name)
        previous, reasons[key] = reasons.get(key), notice.fields["reason"]
        return [] if previous == notice.fields["reason"] else [notice]

    def drop(self, kind: type[Any], identity: Identity) -> None:
        """Record that the object is deleted, or has become readable."""
        if reasons := self._reasons.get(kind):
            reasons.pop((identity.namespace, identity.name), None)

    def keep(self, kind: type[Any], identities: Iterable[Identity]) -> None:
        if reasons := self._reasons.get(kind):
            present = {(identity.namespace, identity.name) for identity in identities}
            self._reasons[kind] = {key: reason for key, reason in reasons.items() if key in present}
