"""The Binds of groups that wait for volumes: none is written until the volumes of its whole decision are bound. Pure.

If a member is deleted meanwhile, it leaves its batch. The batch is then checked again: it may be ready now, or have too
few members.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.cycle.decisions import Bind
from scheduler.kube.group_membership import GroupKey


@dataclass(slots=True)
class Batch:
    """The Binds of one group by uid, and those whose volumes are not bound yet.

    ``min`` is how many members of the group must be placed for any of them to be bound.
    """

    key: GroupKey
    min: int
    binds: dict[str, Bind]
    awaited: set[str]


class HeldBinds:
    """The batches by the uids of their pods."""

    def __init__(self) -> None:
        self._batches: dict[str, Batch] = {}
        # The batches in which something changed; few.
        self._changes: list[Batch] = []

    def __contains__(self, uid: str) -> bool:
        return uid in self._batches

    def __len__(self) -> int:
        return len(self._batches)

    def has_group(self, key: GroupKey) -> bool:
        """Return whether Binds of a group are held: those of later members must not be written before them."""
        return any(batch.key == key for batch in self._batches.values())

    def add(self, key: GroupKey, min_members: int, binds: tuple[Bind, ...]) -> None:
        """Hold the Binds of a decision, together with those of the group that are held already."""
        batch = next((batch for batch in self._batches.values() if batch.key == key), None)
        batch = batch or Batch(key, min_members, {}, set())
        batch.min = max(batch.min, min_members)
        batch.binds |= {bind.pod_info.uid: bind for bind in binds}
        batch.awaited |= {bind.pod_info.uid for bind in binds if bind.plan is not None}
        for bind in binds:
            self._batches[bind.pod_info.uid] = batch

    def is_bound(self, uid: str) -> None:
        """Record that a pod's volumes are bound."""
        batch = self._batches[uid]
        batch.awaited.discard(uid)
        self._note_change(batch)

    def drop(self, uid: str) -> None:
        """Record that a pod was deleted, or left its group."""
        batch = self._batches.pop(uid, None)
        if batch is not None:
            del batch.binds[uid]
            batch.awaited.discard(uid)
            self._note_change(batch)

    def end(self, batch: Batch) -> None:
        """Stop holding a batch."""
        for uid in batch.binds:
            self._batches.pop(uid, None)

    def binds(self) -> list[Bind]:
        """Return all held Binds."""
        return [batch.binds[uid] for uid, batch in self._batches.items()]

    def batch_of(self, uid: str) -> Batch:
        return self._batches[uid]

    def touched(self) -> Iterator[Batch]:
        """Yield the batches that have changed, each once."""
        batches, self._changes = self._changes, []
        yield from (batch for batch in batches if batch.binds)

    @property
    def has_touched(self) -> bool:
        return bool(self._changes)

    def _note_change(self, batch: Batch) -> None:
        if batch not in self._changes:
            self._changes.append(batch)
