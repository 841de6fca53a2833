"""Keep objects as encoded bytes, count revisions, remember changes, and send each change to watchers once.

One store holds every collection under one revision counter, as etcd does. Nothing here awaits: a write and what
watchers get of it are one step of the event loop.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from devcluster.apiserver.objects import Object, decode, encode, section
from devcluster.apiserver.store import fields
from devcluster.apiserver.store.selectors import Selector

Storage = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """An object at one revision: its JSON and the fields for selectors."""

    namespace: str
    name: str
    uid: str
    revision: int
    raw: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def decoded(self) -> Object:
        """Return the object, the caller's own."""
        return decode(self.raw)

    def belongs(self, selector: Selector) -> bool:
        """Return whether the selector selects it."""
        return selector.matches(self.namespace, self.labels, self.fields)


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `before` is None for a create; `entry` is the new state, or the removed one if `gone`."""

    revision: int
    before: Entry | None
    entry: Entry
    gone: bool

    def seen_by(self, selector: Selector) -> tuple[bytes, Entry] | None:
        """Return event type and object as a watcher with this selector sees them, None if it sees nothing.

        An object that leaves the selection is DELETED to this watcher, one that enters is ADDED.
        """
        was = self.before is not None and self.before.belongs(selector)
        now = not self.gone and self.entry.belongs(selector)
        if was and now:
            return b"MODIFIED", self.entry
        if now:
            return b"ADDED", self.entry
        if was:
            return b"DELETED", self.entry
        return None


class Observer(Protocol):
    """A receiver of a collection's changes."""

    @property
    def selector(self) -> Selector:
        """Return its selector."""

    def offer(self, change: Change) -> None:
        """Receive a change; must not block."""


class Collection:
    """The objects of one kind, the changes still remembered, and the observers."""

    def __init__(self, history: int) -> None:
        self.entries: dict[tuple[str, str], Entry] = {}
        self.changes: deque[Change] = deque(maxlen=history)
        self.forgotten = 0  # The newest revision whose change is no longer remembered.
        self._order: list[tuple[str, str]] | None = None
        # Dictionaries for their order: the oldest observer is called first, so that a run can be repeated.
        self._observers: dict[tuple[str, str] | None, dict[Observer, None]] = {}

    def ordered(self) -> list[Entry]:
        """Return all entries by namespace and name."""
        if self._order is None:
            self._order = sorted(self.entries)
        return [self.entries[key] for key in self._order]

    def select(self, selector: Selector) -> list[Entry]:
        """Return the selected entries, in order."""
        name = selector.exact("metadata.name")
        if name is not None and selector.namespace is not None:
            entry = self.entries.get((selector.namespace, name))
            return [entry] if entry is not None and entry.belongs(selector) else []
        if selector.everything and selector.namespace is None:
            return self.ordered()
        return [entry for entry in self.ordered() if entry.belongs(selector)]

    def since(self, revision: int) -> Iterator[Change]:
        """Yield the remembered changes after a revision, oldest first."""
        newer = []
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            newer.append(change)
        return reversed(newer)

    def commit(self, change: Change) -> None:
        """Apply a change: to the entries, the memory, the watchers."""
        key = (change.entry.namespace, change.entry.name)
        if change.gone:
            del self.entries[key]
        else:
            self.entries[key] = change.entry
        if change.gone or change.before is None:
            self._order = None
        if len(self.changes) == self.changes.maxlen:
            self.forgotten = self.changes[0].revision
        self.changes.append(change)
        for observer in self._concerned(change):
            observer.offer(change)

    def forget(self, keep: int = 0) -> None:
        """Drop all but the newest `keep` changes, as etcd's compaction does."""
        while len(self.changes) > keep:
            self.forgotten = self.changes.popleft().revision

    def _concerned(self, change: Change) -> Iterable[Observer]:
        states = (change.entry,) if change.before is None else (change.entry, change.before)
        routes = [None, *((path, state.fields.get(path, "")) for path in fields.INDEXED for state in states)]
        return dict.fromkeys(observer for route in routes for observer in self._observers.get(route, ()))

    def observe(self, observer: Observer) -> None:
        """Add an observer of every later change."""
        self._observers.setdefault(_route(observer.selector), {})[observer] = None

    def ignore(self, observer: Observer) -> None:
        """Remove an observer."""
        route = _route(observer.selector)
        observers = self._observers.get(route, {})
        observers.pop(observer, None)
        if not observers:
            self._observers.pop(route, None)

    def observers(self) -> list[Observer]:
        """Return all observers."""
        return [observer for group in self._observers.values() for observer in group]


def _route(selector: Selector) -> tuple[str, str] | None:
    for path in fields.INDEXED:
        value = selector.exact(path)
        if value is not None:
            return path, value
    return None


class Store:
    """All collections and the one revision counter."""

    def __init__(self, history: int) -> None:
        self.revision = 1
        self._history = history
        self._collections: dict[Storage, Collection] = {}

    def collection(self, storage: Storage) -> Collection:
        """Return a collection, empty at first."""
        found = self._collections.get(storage)
        if found is None:
            found = self._collections[storage] = Collection(self._history)
        return found

    def collections(self) -> dict[Storage, Collection]:
        """Return all collections used so far."""
        return self._collections

    def get(self, storage: Storage, namespace: str, name: str) -> Entry | None:
        """Return an object, None if it does not exist."""
        return self.collection(storage).entries.get((namespace, name))

    def put(self, storage: Storage, obj: Object) -> Entry:
        """Write an object, new or not, at the next revision."""
        entry = self.preview(storage, obj, self.revision + 1)
        collection = self.collection(storage)
        self.revision += 1
        before = collection.entries.get((entry.namespace, entry.name))
        collection.commit(Change(self.revision, before, entry, gone=False))
        return entry

    def remove(self, storage: Storage, obj: Object) -> Entry:
        """Remove an object; watchers see its last state, as given, at the next revision."""
        entry = self.preview(storage, obj, self.revision + 1)
        collection = self.collection(storage)
        before = collection.entries[entry.namespace, entry.name]
        self.revision += 1
        collection.commit(Change(self.revision, before, entry, gone=True))
        return entry

    def preview(self, storage: Storage, obj: Object, revision: int) -> Entry:
        """Return the entry that a write would make; revision 0 leaves the object's own."""
        metadata = obj["metadata"]
        if revision:
            metadata["resourceVersion"] = str(revision)
        return Entry(
            metadata.get("namespace", ""),
            metadata["name"],
            metadata["uid"],
            revision,
            encode(obj),
            section(metadata, "labels"),
            fields.read(storage, obj),
        )
