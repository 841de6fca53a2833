"""One watcher: a bounded queue of unread events, emptied in batches.

A watcher that reads too slowly is ended with a clean end of the stream, never with a gap. What was queued is still
sent, and the client resumes from the last version that it saw (measured on a real server).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from devcluster.apiserver.store.selectors import Selector
from devcluster.apiserver.store.store import Change, Entry

Event = tuple[bytes, Entry]
# Events joined into one write, at most.
_BATCH = 500


class Watch:
    """The queue between a collection's changes and a client's connection."""

    def __init__(self, selector: Selector, limit: int) -> None:
        self._selector = selector
        self._limit = limit
        self._queue: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._bookmark_due = False
        self._is_complete = True

    @property
    def selector(self) -> Selector:
        """Return its selector."""
        return self._selector

    def offer(self, change: Change) -> None:
        """Queue a change, or end the watch if the queue is full."""
        event = change.seen_by(self._selector)
        if event is None:
            return
        if self._ended or len(self._queue) >= self._limit:
            self._is_complete = False
            self.end()
        else:
            self._queue.append(event)
            self._wake.set()

    def end(self) -> None:
        """Take no more changes; the stream ends after what is queued."""
        self._ended = True
        self._wake.set()

    def bookmark(self) -> None:
        """Request a bookmark after what is queued."""
        self._bookmark_due = True
        self._wake.set()

    async def batches(self) -> AsyncIterator[tuple[list[Event], bool]]:
        """Yield events in order, and whether a bookmark is due right after them; end with the watch.

        A bookmark is due only with an emptied queue and if nothing was left out, so the store's revision at that
        moment is what the client has seen.
        """
        while True:
            await self._wake.wait()
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]
            bookmark = self._bookmark_due and self._is_complete and not self._queue
            if bookmark:
                self._bookmark_due = False
            if batch or bookmark:
                yield batch, bookmark
            if self._queue:
                continue
            if self._ended:
                return
            if not self._bookmark_due:
                self._wake.clear()
