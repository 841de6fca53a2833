"""Receive all objects on which decisions depend: a list and watch for each kind, and the inbox of the loop.

A node writes its own inventory, as often as it likes. A change of a node therefore replaces an earlier one that still
waits in the inbox, and one node has at most one change there. All other messages about nodes keep their order: a later
change never moves before them.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Identity, Synced
from mooring.kube.failures import NotFound, Refused
from mooring.kube.watch import Decoder, watch
from scheduler.cache.volumes import volume_cache as volume_cache
from scheduler.kube import objects
from scheduler.kube.objects import Node, Pod, RuntimeClass
from scheduler.kube.workload_objects import JOB_PATHS, POD_GROUP_PATHS, Job
from scheduler.server.writes import WriteResult
from scheduler.state.cluster_objects import PATHS

_log = structlog.get_logger()
SOURCES: Mapping[type[Any], str] = {Node: "/api/v1/nodes", Pod: "/api/v1/pods", **PATHS, **volume_cache.PATHS}
# Optional kinds: their API may not be served, or this account may not read it. Each has its paths in order.
OPTIONAL: Mapping[type[Any], tuple[str, ...]] = {
    **POD_GROUP_PATHS,
    Job: JOB_PATHS,
    RuntimeClass: objects.RUNTIME_CLASS_PATHS,
}
_ALL_KINDS = SOURCES.keys() | OPTIONAL.keys()
# Seconds after which such an API is tried again.
_LOOK_S = 60.0
# An API that was served until now is tried this many times, this many seconds apart, before it counts as missing: an
# API server that starts, or a proxy, may report for a moment that it does not exist.
_MOMENTS, _MOMENT_S = 30, 1.0
# Seconds after its cancellation at which a watch that has not ended is cancelled again.
_CANCEL_AGAIN_S = 1.0


class WatchEvent(msgspec.Struct, frozen=True):
    kind: type[Any]
    event: Event[Any]


@dataclass(frozen=True, slots=True)
class EndOfList:
    kind: type[Any]
    count: int


Message = WatchEvent | EndOfList | WriteResult


def list_messages(kind: type[Any], whole_list: Synced[Any]) -> Iterator[WatchEvent | EndOfList]:
    """Yield a whole list as one message for each entry that is not in the cache already, and one at the end.

    Each entry is released as it is yielded: handling a hundred thousand at once would delay everything.
    """
    count, entries = len(whole_list.entries) + len(whole_list.unchanged), list(reversed(whole_list.entries))
    del whole_list
    while entries:
        yield WatchEvent(kind, entries.pop())
    yield EndOfList(kind, count)


@dataclass(slots=True)
class _NodeChange:
    name: str
    newest: WatchEvent


class Inbox:
    """Messages that the loop has received and not yet processed."""

    def __init__(self) -> None:
        self._messages: deque[Message | _NodeChange] = deque()
        # Those that a newer change may still replace.
        self._changes: dict[str, _NodeChange] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def put(self, message: Message) -> None:
        if not isinstance(message, WatchEvent) or message.kind is not Node:
            self._messages.append(message)
        elif not isinstance(message.event, Changed):
            self._changes.clear()
            self._messages.append(message)
        elif (queued_change := self._changes.get(name := message.event.identity.name)) is not None:
            queued_change.newest = message
        else:
            self._changes[name] = change = _NodeChange(name, message)
            self._messages.append(change)

    def take(self) -> Message:
        """Remove and return the first message; raise IndexError if there is none."""
        message = self._messages.popleft()
        if not isinstance(message, _NodeChange):
            return message
        if self._changes.get(message.name) is message:
            del self._changes[message.name]
        return message.newest

    def clear(self) -> None:
        self._messages.clear()
        self._changes.clear()


class Reflectors:
    """The watches of one scheduler; their events go to ``receive`` at once, in order for each kind.

    ``is_known`` returns whether an object is in the cache in exactly this version; ``ready`` is set once everything has
    been listed.
    """

    def __init__(
        self, client: Client, receive: Callable[[WatchEvent], None], is_known: Callable[[type[Any], Identity], bool]
    ) -> None:
        self._client, self._receive, self._is_known = client, receive, is_known
        self._tasks: set[asyncio.Task[None]] = set()
        self._term = 0
        self._event_counts: Counter[type[Any]] = Counter()
        self._listed_kinds: set[type[Any]] = set()
        self._kinds_of_all_terms: set[type[Any]] = set()
        self.ready = asyncio.Event()

    def begin(self, group: asyncio.TaskGroup) -> None:
        """List everything, again if it was listed already, and watch it in tasks of the group."""
        self._cancel()
        self._listed_kinds.clear()
        for kind, path in SOURCES.items():
            self._start(group, self._follow(kind, path, self._term))
        for kind, paths in OPTIONAL.items():
            self._start(group, self._follow_optional(kind, paths, self._term))

    async def end(self) -> None:
        """End the watches; cancel again if a timeout inside a request swallows a cancellation."""
        while self._tasks:
            self._cancel()
            await asyncio.wait(set(self._tasks), timeout=_CANCEL_AGAIN_S)

    def note(self, end_of_list: EndOfList, *, leads: bool) -> None:
        self._listed_kinds.add(end_of_list.kind)
        self._kinds_of_all_terms.add(end_of_list.kind)
        if not self.not_ready():
            self.ready.set()
        _log.info("listed", kind=end_of_list.kind.__name__, count=end_of_list.count, leads=leads)

    def unlisted_kinds(self) -> str:
        """Return what has not been listed since the last start; empty if everything has."""
        return _unlisted_names(self._listed_kinds)

    def not_ready(self) -> str:
        """Return what was never listed; empty if everything was."""
        return _unlisted_names(self._kinds_of_all_terms)

    def _start(self, group: asyncio.TaskGroup, coroutine: Coroutine[Any, Any, None]) -> None:
        task = group.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        """Cancel the watches; events that they still deliver are dropped."""
        self._term += 1
        for task in self._tasks:
            task.cancel()

    async def _follow_optional(self, kind: type[Any], paths: Sequence[str], term: int) -> None:
        """Follow the first path that is served; while none is, there are no objects, and all are tried again."""
        is_empty, looks = False, 0 if self._event_counts[kind] else _MOMENTS
        while term == self._term:
            event_count = self._event_counts[kind]
            for path in paths:
                try:
                    await self._follow(kind, path, term, is_optional=True)
                except (NotFound, Refused) as error:
                    _log.debug("not served", kind=kind.__name__, path=path, reason=str(error))
            if self._event_counts[kind] != event_count:
                is_empty, looks = False, 0
            if term == self._term and looks >= _MOMENTS and not is_empty:
                self._receive(WatchEvent(kind, Synced(())))
                is_empty = True
            looks += 1
            await asyncio.sleep(_LOOK_S if is_empty else _MOMENT_S)

    async def _follow(self, kind: type[Any], path: str, term: int, *, is_optional: bool = False) -> None:
        is_known = partial(self._is_known, kind)
        async for event in watch(self._client, path, Decoder(kind), is_known=is_known, is_optional=is_optional):
            if term != self._term:
                return
            self._event_counts[kind] += 1
            self._receive(WatchEvent(kind, event))
            # It may hold a whole list, and the next event may be late.
            del event


def _unlisted_names(kinds: set[type[Any]]) -> str:
    if kinds >= _ALL_KINDS:
        return ""
    names = [f"{kind.__name__} ({_permission(path)})" for kind, path in SOURCES.items() if kind not in kinds]
    names += [f"{kind.__name__} ({paths[0]})" for kind, paths in OPTIONAL.items() if kind not in kinds]
    return f"not listed yet: {', '.join(names)}"


def _permission(path: str) -> str:
    *_, group, _version, plural = path.split("/")
    return f"needs permission to list and watch {plural}" + (f".{group}" if group != "api" else "")
