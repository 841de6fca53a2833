"""The Binds of groups that wait for volumes: none is written until the volumes of its whole decision are bound. Pure.

If a member is deleted meanwhile, it leaves its batch. The batch is then checked again: it may be ready now, or have too
few members.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from scheduler.cycle.decisions import Bind
from scheduler.kube.group_membership import GroupKey


@dataclass(slots=True)
class Batch:
    """The Binds of one group by uid, and those whose volumes are not bound yet.

    ``min`` is how many members of the group must be placed for any of them to be bound.
    """

    key: GroupKey
    min: int = 0
    binds: dict[str, Bind] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    has_changed: bool = False


class HeldBinds:
    """The batches by group; they are few."""

    def __init__(self) -> None:
        self._batches: dict[GroupKey, Batch] = {}

    def __contains__(self, uid: str) -> bool:
        return self.batch_of(uid) is not None

    def has_group(self, key: GroupKey) -> bool:
        """Return whether Binds of a group are held: those of later members must not be written before them."""
        return key in self._batches

    def add(self, key: GroupKey, min_members: int, binds: tuple[Bind, ...]) -> None:
        """Hold the Binds of a decision, together with those of the group that are held already."""
        batch = self._batches.setdefault(key, Batch(key))
        batch.min = max(batch.min, min_members)
        batch.binds |= {bind.pod_info.uid: bind for bind in binds}
        batch.awaited |= {bind.pod_info.uid for bind in binds if bind.plan is not None}

    def is_bound(self, uid: str) -> None:
        """Record that a pod's volumes are bound."""
        if (batch := self.batch_of(uid)) is not None:
            batch.awaited.discard(uid)
            batch.has_changed = True

    def drop(self, uid: str) -> None:
        """Record that a pod was deleted, or left its group."""
        if (batch := self.batch_of(uid)) is not None:
            self.is_bound(uid)
            del batch.binds[uid]
            if not batch.binds:
                self.end(batch)

    def end(self, batch: Batch) -> None:
        """Stop holding a batch."""
        self._batches.pop(batch.key, None)

    def binds(self) -> list[Bind]:
        """Return all held Binds."""
        return [bind for batch in self._batches.values() for bind in batch.binds.values()]

    def batch_of(self, uid: str) -> Batch | None:
        return next((batch for batch in self._batches.values() if uid in batch.binds), None)

    def changed(self) -> Iterator[Batch]:
        """Yield the batches that have changed, each once."""
        for batch in [one for one in self._batches.values() if one.has_changed]:
            batch.has_changed = False
            yield batch

    @property
    def has_changed(self) -> bool:
        return any(batch.has_changed for batch in self._batches.values())
