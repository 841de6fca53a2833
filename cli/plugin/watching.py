"""Follow what a command reads: list it once, watch it from then on, and run the command again on each change.

The command itself runs unchanged: its reader answers each list with the objects that the watch has.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from cli.plugin.commands import run
from cli.plugin.invocation import Invocation
from cli.plugin.reading import Reader, ReportProgress, resource_of
from cli.plugin.reports.tables import Answer
from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from mooring.kube.watch import Decoder, watch

T = TypeVar("T")
# Changes that come within this time, in seconds, are shown together: a bind changes several objects.
_TOGETHER_S = 0.1
# Seconds after which a command is run again without a change: a leader that died renews its Lease no more.
_AGAIN_S = 10.0
# Objects of a list after which its progress is reported.
_PROGRESS = 500
_ListKey = tuple[str, type[Any], tuple[tuple[str, str], ...]]


class _WatchedList:
    """The objects of a list, as its watch reported them last."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        self.unreadable: dict[tuple[str, str], str] = {}
        self.is_synced = asyncio.Event()
        self._ordered: list[Any] | None = None

    def in_order(self) -> list[Any]:
        """Return the objects by namespace and name."""
        if self._ordered is None:
            self._ordered = [self.objects[name] for name in sorted(self.objects)]
        return self._ordered

    def apply(self, event: Event[Any]) -> None:
        self._ordered = None
        match event:
            case Synced(entries):
                self.objects, self.unreadable = {}, {}
                for entry in entries:
                    self._put(entry)
                self.is_synced.set()
            case Removed(identity):
                self._drop(identity)
            case Changed() | Unreadable():
                self._drop(event.identity)
                self._put(event)

    def _put(self, entry: Changed[Any] | Unreadable) -> None:
        key = (entry.identity.namespace, entry.identity.name)
        if isinstance(entry, Changed):
            self.objects[key] = entry.item
        else:
            self.unreadable[key] = entry.why

    def _drop(self, identity: Identity) -> None:
        key = (identity.namespace, identity.name)
        self.objects.pop(key, None)
        self.unreadable.pop(key, None)


class WatchingReader(Reader):
    """A reader that watches each list that it reads; ``changed`` is set when one of them changes."""

    _verbs = ("list", "watch")

    def __init__(self, client: Client, report_progress: ReportProgress = lambda _what, _count: None) -> None:
        super().__init__(client, report_progress)
        self._server = client
        self._lists: dict[_ListKey, _WatchedList] = {}
        self._watches: dict[_ListKey, asyncio.Task[None]] = {}
        self.changed = asyncio.Event()

    async def _pages(self, path: str, kind: type[T], params: Mapping[str, str]) -> list[T]:
        """Return the present objects by namespace and name; raise what ended the watch."""
        key = (path, kind, tuple(sorted(params.items())))
        known = self._lists.get(key)
        if known is None:
            # A watch repeats what fails. A server that cannot be reached, or refuses, is told at once.
            await self._client.request("GET", path, params={**params, "limit": "1"})
            known = self._lists[key] = _WatchedList()
            self._watches[key] = asyncio.create_task(self._follow(known, path, kind, params))
        await known.is_synced.wait()
        if self._watches[key].done():
            self._watches[key].result()
        for name, why in sorted(known.unreadable.items()):
            self._leave_out(kind, "/".join(filter(None, name)), why)
        return known.in_order()

    async def _follow(self, known: _WatchedList, path: str, kind: type[T], params: Mapping[str, str]) -> None:
        count = 0

        def is_known(_: Identity) -> bool:
            nonlocal count
            count += 1
            if count % _PROGRESS == 0 and not known.is_synced.is_set():
                self._report_progress(resource_of(path), count)
            return False

        try:
            async for event in watch(self._server, path, Decoder(kind), params, is_known, is_optional=True):
                known.apply(event)
                self.changed.set()
        finally:
            known.is_synced.set()
            self.changed.set()

    async def stop(self) -> None:
        """End the watches."""
        for one in self._watches.values():
            one.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)


async def follow(
    reader: WatchingReader, invocation: Invocation, show: Callable[[Answer], object], now: Callable[[], float]
) -> None:
    """Show a command's answer, and again after each change and now and then, without end; raise as `run` does.

    ``now`` is the UNIX time.
    """
    try:
        while True:
            begun = time.process_time()
            reader.changed.clear()
            reader.notes.clear()
            answer = await run(reader, replace(invocation, now=now()))
            show(answer)
            ended, took = time.monotonic(), time.process_time() - begun
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await reader.changed.wait()
            # Where changes never end, half of a core is left for other programs.
            await asyncio.sleep(max(_TOGETHER_S, ended + took - time.monotonic()))
    finally:
        await reader.stop()
