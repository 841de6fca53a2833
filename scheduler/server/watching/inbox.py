"""Messages that the loop has received and not yet processed, in order; of a node's changes only the newest.

A node writes its own inventory, as often as it likes. A change of a node therefore replaces an earlier one that still
waits, and one node has at most one change here. All other messages about nodes keep their order: a later change never
moves before them.
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from mooring.kube.events import Changed
from scheduler.kube.objects import Node
from scheduler.server.watching.reflectors import WatchEvent

M = TypeVar("M")


@dataclass(slots=True)
class _NodeChange:
    """A node's waiting change: the newest one."""

    name: str
    newest: WatchEvent


class Inbox(Generic[M]):
    """Messages of type ``M``, and watch events."""

    def __init__(self) -> None:
        self._messages: deque[M | WatchEvent | _NodeChange] = deque()
        # Those that a newer change may still replace.
        self._changes: dict[str, _NodeChange] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def put(self, message: M | WatchEvent) -> None:
        if isinstance(message, WatchEvent) and message.kind is Node:
            self._put_about_nodes(message)
        else:
            self._messages.append(message)

    def put_first(self, message: M) -> None:
        self._messages.appendleft(message)

    def take(self) -> M | WatchEvent:
        """Remove and return the first message; raise IndexError if there is none."""
        message = self._messages.popleft()
        if not isinstance(message, _NodeChange):
            return message
        if self._changes.get(message.name) is message:
            del self._changes[message.name]
        return message.newest

    def starts_with(self, kind: type[M]) -> bool:
        """Return whether the first message is of this type."""
        return bool(self._messages) and isinstance(self._messages[0], kind)

    def clear(self) -> None:
        self._messages.clear()
        self._changes.clear()

    def _put_about_nodes(self, message: WatchEvent) -> None:
        if not isinstance(message.event, Changed):
            self._changes.clear()
            self._messages.append(message)
            return
        name = message.event.identity.name
        if (queued_change := self._changes.get(name)) is not None:
            queued_change.newest = message
            return
        self._changes[name] = change = _NodeChange(name, message)
        self._messages.append(change)
