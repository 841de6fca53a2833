"""Watch all objects on which decisions depend: a reflector for each kind, and whether all have been listed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.events import Event, Identity, Synced
from mooring.kube.failures import NotFound, Refused
from mooring.kube.watch import Decoder, watch
from scheduler.cache.groups import group_sources
from scheduler.cache.volumes import volume_cache as volume_cache
from scheduler.kube import jobs, objects
from scheduler.kube.jobs import Job
from scheduler.kube.objects import Node, Pod, RuntimeClass
from scheduler.state.cluster_objects import PATHS

_log = structlog.get_logger()
SOURCES: Mapping[type[Any], str] = {Node: "/api/v1/nodes", Pod: "/api/v1/pods", **PATHS, **volume_cache.PATHS}
# Optional kinds: their API may not be served, or this account may not read it. Each has its paths in order.
OPTIONAL: Mapping[type[Any], tuple[str, ...]] = {
    **group_sources.PATHS,
    Job: jobs.PATHS,
    RuntimeClass: objects.RUNTIME_CLASS_PATHS,
}
_EVERY = SOURCES.keys() | OPTIONAL.keys()
# Seconds after which such an API is tried again.
_LOOK_S = 60.0
# An API that was served until now is tried this many times, this many seconds apart, before it counts as missing: an
# API server that starts, or a proxy, may report for a moment that it does not exist.
_MOMENTS, _MOMENT_S = 30, 1.0
# Seconds after its cancellation at which a watch that has not ended is cancelled again.
_AGAIN_S = 1.0


class WatchEvent(msgspec.Struct, frozen=True):
    """An event of a watch, with the kind of object."""

    kind: type[Any]
    event: Event[Any]


@dataclass(frozen=True, slots=True)
class EndOfList:
    """The whole list of a kind has been applied."""

    kind: type[Any]
    count: int


def taken_apart(kind: type[Any], synced: Synced[Any]) -> Iterator[WatchEvent | EndOfList]:
    """Yield a whole list as one message for each entry that is not in the cache already, and one at the end.

    Each entry is released as it is yielded: handling a hundred thousand at once would delay everything.
    """
    count, entries = len(synced.entries) + len(synced.unchanged), list(reversed(synced.entries))
    del synced
    while entries:
        yield WatchEvent(kind, entries.pop())
    yield EndOfList(kind, count)


class Reflectors:
    """The watches of one scheduler; their events go to ``receive`` at once, in order for each kind.

    ``is_known`` returns whether an object is in the cache in exactly this version; ``followed`` is set once everything
    has been listed.
    """

    def __init__(
        self, client: Client, receive: Callable[[WatchEvent], None], is_known: Callable[[type[Any], Identity], bool]
    ) -> None:
        self._client = client
        self._receive = receive
        self._is_known = is_known
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._event_counts: Counter[type[Any]] = Counter()
        self._synced_kinds: set[type[Any]] = set()
        self._kinds_ever_synced: set[type[Any]] = set()
        self.followed = asyncio.Event()

    def begin(self, group: asyncio.TaskGroup) -> None:
        """List everything, again if it was listed already, and watch it in tasks of the group."""
        self.end()
        self._synced_kinds.clear()
        for kind, path in SOURCES.items():
            self._start(group, self._follow(kind, path, self._turn))
        for kind, paths in OPTIONAL.items():
            self._start(group, self._follow_while_served(kind, paths, self._turn))

    def _start(self, group: asyncio.TaskGroup, coroutine: Coroutine[Any, Any, None]) -> None:
        task = group.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """Cancel the watches; events that they still deliver are dropped."""
        self._turn += 1
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Wait until the watches have ended; cancel again if a timeout inside a request swallows a cancellation."""
        while self._tasks:
            self.end()
            await asyncio.wait(set(self._tasks), timeout=_AGAIN_S)

    def note(self, end_of_list: EndOfList, *, leads: bool) -> None:
        self._synced_kinds.add(end_of_list.kind)
        self._kinds_ever_synced.add(end_of_list.kind)
        if not self.never_listed():
            self.followed.set()
        _log.info("listed", kind=end_of_list.kind.__name__, count=end_of_list.count, leads=leads)

    def missing(self) -> str:
        """Return what has not been listed since the last start; empty if everything has."""
        return _missing(self._synced_kinds)

    def never_listed(self) -> str:
        """Return what was never listed; empty if everything was."""
        return _missing(self._kinds_ever_synced)

    async def _follow_while_served(self, kind: type[Any], paths: Sequence[str], turn: int) -> None:
        """Follow the first path that is served; while none is served, there are no objects, and the paths are tried
        again.
        """
        is_empty, looks = False, 0 if self._event_counts[kind] else _MOMENTS
        while turn == self._turn:
            event_count = self._event_counts[kind]
            for path in paths:
                try:
                    await self._follow(kind, path, turn, is_optional=True)
                except (NotFound, Refused) as absent:
                    _log.debug("not served", kind=kind.__name__, path=path, reason=str(absent))
            if self._event_counts[kind] != event_count:
                is_empty, looks = False, 0
            if turn == self._turn and looks >= _MOMENTS and not is_empty:
                self._receive(WatchEvent(kind, Synced(())))
                is_empty = True
            looks += 1
            await asyncio.sleep(_LOOK_S if is_empty else _MOMENT_S)

    async def _follow(self, kind: type[Any], path: str, turn: int, *, is_optional: bool = False) -> None:
        is_known = partial(self._is_known, kind)
        async for event in watch(self._client, path, Decoder(kind), is_known=is_known, is_optional=is_optional):
            if turn != self._turn:
                return
            self._event_counts[kind] += 1
            self._receive(WatchEvent(kind, event))
            # It may hold a whole list, and the next event may be late.
            del event


def _missing(kinds: set[type[Any]]) -> str:
    if kinds >= _EVERY:
        return ""
    missing = [f"{kind.__name__} ({_rule(path)})" for kind, path in SOURCES.items() if kind not in kinds]
    missing += [f"{kind.__name__} ({paths[0]})" for kind, paths in OPTIONAL.items() if kind not in kinds]
    return f"not listed yet: {', '.join(missing)}"


def _rule(path: str) -> str:
    *_, group, _version, plural = path.split("/")
    return f"needs permission to list and watch {plural}" + (f".{group}" if group != "api" else "")
