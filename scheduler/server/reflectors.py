"""Follow all that decisions rest on: a watch for each kind of object, and whether all of them have been listed."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.events import Event, Identity, Synced
from mooring.kube.watch import Decoder, watch
from scheduler.cache.volumes import volume_cache as volume_cache
from scheduler.kube.objects import Node, Pod
from scheduler.state.cluster_objects import PATHS

_log = structlog.get_logger()
SOURCES: Mapping[type[Any], str] = {Node: "/api/v1/nodes", Pod: "/api/v1/pods", **PATHS, **volume_cache.PATHS}
# A watch that has not ended so long after it was told to is told again, in seconds.
_AGAIN_S = 1.0


class Seen(msgspec.Struct, frozen=True):
    """What a watch has told of a kind of object."""

    kind: type[Any]
    event: Event[Any]


@dataclass(frozen=True, slots=True)
class Listed:
    """All that was listed of a kind has been taken in."""

    kind: type[Any]
    count: int


def taken_apart(kind: type[Any], listed: Synced[Any]) -> Iterator[Seen | Listed]:
    """Yield a whole list as one message for each entry that is not known already, and one that says that it is all.

    Each entry is let go as it is yielded: a hundred thousand at once would hold everything up.
    """
    count, left = len(listed.entries) + len(listed.unchanged), list(reversed(listed.entries))
    del listed
    while left:
        yield Seen(kind, left.pop())
    yield Listed(kind, count)


class Reflectors:
    """The watches of one scheduler; what they tell goes to ``receive`` at once, in order of each kind.

    ``is_known`` says whether an object is known in just this version; ``followed`` is set once everything has been
    listed.
    """

    def __init__(
        self, client: Client, receive: Callable[[Seen], None], is_known: Callable[[type[Any], Identity], bool]
    ) -> None:
        self._client = client
        self._receive = receive
        self._is_known = is_known
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._listed: set[type[Any]] = set()
        self._ever_listed: set[type[Any]] = set()
        self.followed = asyncio.Event()

    def begin(self, group: asyncio.TaskGroup) -> None:
        """List everything, again if it was listed already, and follow it in tasks of the group."""
        self.end()
        self._listed.clear()
        for kind, path in SOURCES.items():
            task = group.create_task(self._follow(kind, path, self._turn))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """Tell the watches to end; what they still bring is dropped."""
        self._turn += 1
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """End the watches, as often as it takes: a time limit inside a request may take a cancellation for its own."""
        while self._tasks:
            self.end()
            await asyncio.wait(set(self._tasks), timeout=_AGAIN_S)

    def note(self, listed: Listed, *, leads: bool) -> None:
        """Record that a list has been taken in."""
        self._listed.add(listed.kind)
        self._ever_listed.add(listed.kind)
        if not self.never_listed():
            self.followed.set()
        _log.info("listed", kind=listed.kind.__name__, count=listed.count, leads=leads)

    def missing(self) -> str:
        """Return what has not been listed since the last beginning; empty if everything has."""
        return _missing(self._listed)

    def never_listed(self) -> str:
        """Return what has not been listed at all; empty if everything has."""
        return _missing(self._ever_listed)

    async def _follow(self, kind: type[Any], path: str, turn: int) -> None:
        is_known = partial(self._is_known, kind)
        async for event in watch(self._client, path, Decoder(kind), is_known=is_known):
            if turn != self._turn:
                return
            self._receive(Seen(kind, event))
            # It may be all that there is, and the next may be long in coming.
            del event


def _missing(listed: set[type[Any]]) -> str:
    if SOURCES.keys() <= listed:
        return ""
    missing = [f"{kind.__name__} ({_rule(path)})" for kind, path in SOURCES.items() if kind not in listed]
    return f"not listed yet: {', '.join(missing)}"


def _rule(path: str) -> str:
    """Name the permission without which a kind is never listed."""
    *_, group, _version, plural = path.split("/")
    return f"needs list and watch of {plural}" + (f".{group}" if group != "api" else "")
