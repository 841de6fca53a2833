"""Serve one watch: start at the right place, then send every change, bookmarks, and a clean end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from devcluster.apiserver import status
from devcluster.apiserver.call import Call
from devcluster.apiserver.cluster import Cluster
from devcluster.apiserver.formats.views import View
from devcluster.apiserver.objects import encode
from devcluster.apiserver.status import ApiError
from devcluster.apiserver.store.listing import read_revision
from devcluster.apiserver.store.selectors import Selector
from devcluster.apiserver.store.store import Collection
from devcluster.apiserver.store.watch import Event, Watch
from devcluster.apiserver.verbs.answer import find_kind, view_of

Write = Callable[[bytes], Awaitable[None]]
# A watch without a timeout ends after so many seconds; a real server takes 30 to 60 minutes.
_TIMEOUT_S = 1800
# Initial events are written in chunks of this many.
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How far a slow watcher may fall behind, in events, and how often a bookmark comes, in seconds."""

    queue: int = 10_000
    bookmark_s: float = 60.0


DEFAULT_LIMITS = WatchLimits()


class Stream:
    """A watch that has been accepted; `run` writes it."""

    def __init__(self, cluster: Cluster, call: Call, limits: WatchLimits) -> None:
        resource = find_kind(cluster, call)
        self._cluster = cluster
        self._call = call
        self._collection: Collection = cluster.collection(resource)
        self._view: View = view_of(cluster, resource, call)
        self._selector: Selector = call.selector(resource)
        self._timeout_s = call.integer("timeoutSeconds") or _TIMEOUT_S
        self._bookmarks = call.flag("allowWatchBookmarks")
        self._initial = call.flag("sendInitialEvents")
        self._limits = limits
        self._from = call.query.get("resourceVersion", "") or "0"
        try:
            read_revision(self._from)
        except ValueError as error:
            raise ApiError(500, "", str(error)) from None

    async def run(self, write: Write) -> None:
        """Write events until the time is over, the client reads too slowly, or the server ends the watch."""
        start = read_revision(self._from)
        if 0 < start < self._collection.forgotten and not self._initial:
            await write(_expired(start, self._collection.forgotten))
            return
        watch = Watch(self._selector, self._limits.queue)
        history = list(self._missed(start))
        revision = self._cluster.store.revision
        self._collection.observe(watch)
        timers = _Timers(watch, self._timeout_s, self._limits.bookmark_s if self._bookmarks else None)
        try:
            await self._write_initial(write, history, revision)
            async for batch, bookmark in watch.batches():
                mark = self._view.bookmark(self._cluster.store.revision, False) if bookmark else b""
                await write(self._lines(batch) + mark)
        finally:
            timers.cancel()
            self._collection.ignore(watch)

    def _missed(self, start: int) -> Iterator[Event]:
        if start == 0 or self._initial:
            for entry in self._collection.select(self._selector):
                yield b"ADDED", entry
            return
        for change in self._collection.since(start):
            event = change.seen_by(self._selector)
            if event is not None:
                yield event

    async def _write_initial(self, write: Write, history: list[Event], revision: int) -> None:
        for position in range(0, len(history), _CHUNK):
            await write(self._lines(history[position : position + _CHUNK]))
        if self._initial and self._bookmarks:
            await write(self._view.bookmark(revision, True))

    def _lines(self, events: list[Event]) -> bytes:
        return b"".join([self._view.event(kind, entry) for kind, entry in events])


def _expired(start: int, forgotten: int) -> bytes:
    error = status.expired(f"too old resource version: {start} ({forgotten})")
    return encode({"type": "ERROR", "object": error.body()}) + b"\n"


class _Timers:
    """End a watch in time and trigger its bookmarks: one each period, and one just before the end."""

    def __init__(self, watch: Watch, timeout_s: float, bookmark_s: float | None) -> None:
        self._watch = watch
        self._bookmark_s = bookmark_s
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.call_later(timeout_s, self._finish)
        self._next = self._loop.call_later(bookmark_s, self._mark) if bookmark_s else None

    def _mark(self) -> None:
        self._watch.bookmark()
        assert self._bookmark_s is not None
        self._next = self._loop.call_later(self._bookmark_s, self._mark)

    def _finish(self) -> None:
        if self._bookmark_s is not None:
            self._watch.bookmark()
        self._watch.end()

    def cancel(self) -> None:
        self._end.cancel()
        if self._next is not None:
            self._next.cancel()
