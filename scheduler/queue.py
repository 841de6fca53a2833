"""Which pod is looked at next.

Active pods go by priority, then age. A pod that was tried waits out its backoff, 1 s doubled with every try to 10 s. A
pod that fits nowhere is parked until something happens that can help one of the rules that refused it: no polling.
"""

import enum
import heapq
from collections.abc import Iterable
from dataclasses import dataclass

_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 10.0


class Happening(enum.Flag):
    """What can help a parked pod."""

    NODE = enum.auto()  # a node came, or something about it changed that a rule reads
    POD_GONE = enum.auto()  # a pod left its node: resources, VFs and ports are free again


NOTHING = Happening(0)


@dataclass(slots=True)
class _Entry:
    """A pod in the queue; ``ticket`` tells its valid heap entry from those left behind."""

    uid: str
    order: tuple[int, str, str]
    attempts: int = 0
    ready_at: float = 0.0
    waits_for: Happening = NOTHING
    ticket: int = 0
    place: str = ""


class Queue:
    """Pods by uid, each in exactly one place: active, backoff, parked, or out (popped, its outcome awaited)."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._active: list[tuple[tuple[int, str, str], int, str]] = []
        self._backoff: list[tuple[float, int, str]] = []
        self._parked: dict[Happening, set[str]] = {}
        self._tickets = 0

    def offer(self, uid: str, priority: int, created: str, now: float) -> None:
        """Take in a pod, or look again at once at one that changed itself; ``created`` is its RFC 3339 time."""
        self.forget(uid)
        self._activate(_Entry(uid, (-priority, created, uid), ready_at=now))

    def forget(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None and entry.place == "parked":
            self._unpark(entry)

    def pop(self, now: float) -> str | None:
        """Return the next pod's uid and count the try; None if none is ready."""
        self._ripen(now)
        while self._active:
            _, ticket, uid = heapq.heappop(self._active)
            entry = self._entries.get(uid)
            if entry is not None and entry.ticket == ticket:
                entry.place = "out"
                entry.attempts += 1
                entry.ready_at = now + min(_FIRST_BACKOFF_S * 2 ** min(entry.attempts - 1, 8), _LONGEST_BACKOFF_S)
                return uid
        return None

    def park(self, uid: str, waits_for: Happening) -> None:
        """Set a popped pod aside until something that it waits for happens; nothing: until it changes itself."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place == "out":
            entry.place, entry.waits_for = "parked", waits_for
            self._parked.setdefault(waits_for, set()).add(uid)

    def retry(self, uid: str) -> None:
        """Let a popped pod come again after its backoff."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place == "out":
            self._defer(entry)

    def wake(self, happening: Happening) -> None:
        """Let the parked pods come again, after their backoff, that wait for what has happened."""
        for waits_for in [waits_for for waits_for in self._parked if waits_for & happening]:
            for uid in sorted(self._parked.pop(waits_for)):
                self._defer(self._entries[uid])

    def next_ready(self) -> float | None:
        """Return when the first pod in backoff becomes ready; None if there is none."""
        while self._backoff and not self._is_valid(self._backoff[0]):
            heapq.heappop(self._backoff)
        return self._backoff[0][0] if self._backoff else None

    def depths(self) -> dict[str, int]:
        """Count the pods by place."""
        counts = dict.fromkeys(("active", "backoff", "parked", "out"), 0)
        for entry in self._entries.values():
            counts[entry.place] += 1
        return counts

    def uids(self) -> Iterable[str]:
        return self._entries.keys()

    def check(self) -> None:
        """Raise AssertionError unless every pod is in exactly one place."""
        for uid, entry in self._entries.items():
            active = any(ticket == entry.ticket for _, ticket, other in self._active if other == uid)
            backoff = any(ticket == entry.ticket for _, ticket, other in self._backoff if other == uid)
            parked = uid in self._parked.get(entry.waits_for, ())
            places = [*["active"] * active, *["backoff"] * backoff, *["parked"] * parked]
            expected = [] if entry.place == "out" else [entry.place]
            assert places == expected, f"pod {uid!r} is {entry.place} but stands in {places}"
        strays = {uid for uids in self._parked.values() for uid in uids} - self._entries.keys()
        assert not strays, f"parked pods that are not known: {sorted(strays)}"

    def _ripen(self, now: float) -> None:
        while self._backoff and (self._backoff[0][0] <= now or not self._is_valid(self._backoff[0])):
            heap_entry = heapq.heappop(self._backoff)
            if self._is_valid(heap_entry):
                self._activate(self._entries[heap_entry[2]])

    def _is_valid(self, heap_entry: tuple[float, int, str]) -> bool:
        entry = self._entries.get(heap_entry[2])
        return entry is not None and entry.ticket == heap_entry[1]

    def _activate(self, entry: _Entry) -> None:
        self._move(entry, "active")
        heapq.heappush(self._active, (entry.order, entry.ticket, entry.uid))

    def _defer(self, entry: _Entry) -> None:
        self._move(entry, "backoff")
        heapq.heappush(self._backoff, (entry.ready_at, entry.ticket, entry.uid))

    def _move(self, entry: _Entry, place: str) -> None:
        self._tickets += 1
        self._entries[entry.uid] = entry
        entry.ticket, entry.place, entry.waits_for = self._tickets, place, NOTHING

    def _unpark(self, entry: _Entry) -> None:
        parked = self._parked[entry.waits_for]
        parked.discard(entry.uid)
        if not parked:
            del self._parked[entry.waits_for]
