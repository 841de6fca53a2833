"""List a collection: whole, or page by page as it was when the first page was read."""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from devcluster.apiserver import status
from devcluster.apiserver.store.selectors import Selector
from devcluster.apiserver.store.store import Collection, Entry

# How many unfinished lists are remembered; older ones answer 410, as after etcd's compaction.
_SNAPSHOTS = 64


@dataclass(frozen=True, slots=True)
class Query:
    """The options of a list beside its selector; a limit of 0 is none."""

    limit: int = 0
    token: str = ""
    revision: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries, the revision of the list, the token of the next page (empty: none) and how many follow."""

    entries: Sequence[Entry]
    revision: int
    token: str = ""
    remaining: int | None = None


class Lister:
    """Serves lists; keeps the snapshots that its tokens name."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[int, tuple[int, bool, list[Entry]]] = OrderedDict()
        self._serial = 0

    def page(self, collection: Collection, selector: Selector, revision: int, query: Query) -> Page:
        """Return one page; raise 400, 410 or 504 for versions and tokens that cannot be served."""
        if query.token:
            return self._continue(query)
        _check_revision(collection, revision, query)
        entries = collection.select(selector)
        if not query.limit or len(entries) <= query.limit:
            return Page(entries, revision)
        self._serial += 1
        self._snapshots[self._serial] = (revision, selector.everything, entries)
        if len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return self._slice(self._serial, 0, query.limit)

    def forget(self) -> None:
        """Let every outstanding token expire."""
        self._snapshots.clear()

    def _continue(self, query: Query) -> Page:
        serial, start = _read_token(query.token)
        if serial not in self._snapshots:
            raise status.expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return self._slice(serial, start, query.limit)

    def _slice(self, serial: int, start: int, limit: int) -> Page:
        revision, everything, entries = self._snapshots[serial]
        end = start + limit if limit else len(entries)
        remaining = len(entries) - end
        if remaining <= 0:
            return Page(entries[start:end], revision)
        token = base64.urlsafe_b64encode(f"{serial}.{end}".encode()).decode()
        return Page(entries[start:end], revision, token, remaining if everything else None)


def _read_token(token: str) -> tuple[int, int]:
    try:
        serial, _, start = base64.urlsafe_b64decode(token).decode().partition(".")
        return int(serial), int(start)
    except (binascii.Error, ValueError):
        raise status.bad_request(f"continue key is not valid: {token!r}") from None


def read_revision(text: str) -> int:
    """Read a resource version; raise ValueError with a real server's message if it is not a number."""
    if not text.isdigit():
        raise ValueError(f'resourceVersion: Invalid value: "{text}": {status.unparsed(text)}')
    return int(text)


def _check_revision(collection: Collection, current: int, query: Query) -> None:
    try:
        asked = read_revision(query.revision or "0")
    except ValueError as error:
        raise status.bad_request(f"invalid resource version: {error}") from None
    if asked > current:
        raise status.too_large_version(asked, current)
    newest = collection.changes[-1].revision if collection.changes else collection.forgotten
    if query.match == "Exact" and asked < newest:
        raise status.expired("The resourceVersion for the provided list is too old.")
