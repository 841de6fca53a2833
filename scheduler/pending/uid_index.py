"""An index of pods by what they use or wait for. Pure."""

from collections.abc import Iterable


class UidIndex:
    """The uids of pods by names, such as those of claims; a pod may have several."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._uids: dict[str, set[str]] = {}

    def put(self, uid: str, names: Iterable[str]) -> None:
        """Add a pod, or replace its names."""
        self.drop(uid)
        self._names[uid] = tuple(names)
        for name in self._names[uid]:
            self._uids.setdefault(name, set()).add(uid)

    def drop(self, uid: str) -> None:
        for name in dict.fromkeys(self._names.pop(uid, ())):
            self._uids[name].discard(uid)
            if not self._uids[name]:
                del self._uids[name]

    def of(self, names: Iterable[str]) -> list[str]:
        """Return the pods that have any of these names."""
        return sorted({uid for name in names for uid in self._uids.get(name, ())})
