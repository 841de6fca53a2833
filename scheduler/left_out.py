"""Which objects are left out, and why: told once, not at each of their heartbeats. Pure."""

from collections.abc import Iterable
from typing import Any

from mooring.kube.events import Identity


class LeftOut:
    """Reasons by kind, namespace and name, for as long as the objects are there and unreadable."""

    def __init__(self) -> None:
        self._why: dict[type[Any], dict[tuple[str, str], str]] = {}

    def __len__(self) -> int:
        return sum(len(reasons) for reasons in self._why.values())

    def note(self, kind: type[Any], identity: Identity, why: str) -> bool:
        """Know why an object is left out; say whether that is new."""
        reasons, key = self._why.setdefault(kind, {}), (identity.namespace, identity.name)
        known, reasons[key] = reasons.get(key), why
        return known != why

    def drop(self, kind: type[Any], identity: Identity) -> None:
        """Take it that the object is gone, or read."""
        if reasons := self._why.get(kind):
            reasons.pop((identity.namespace, identity.name), None)

    def keep(self, kind: type[Any], there: Iterable[Identity]) -> None:
        """Take it that there are no objects of this kind but these."""
        if reasons := self._why.get(kind):
            present = {(identity.namespace, identity.name) for identity in there}
            self._why[kind] = {key: why for key, why in reasons.items() if key in present}
